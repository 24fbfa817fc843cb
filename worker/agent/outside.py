"""What a tool needs that works outside Shoal's own store, such as a command on a machine: no guard
of the store can stop its effects when the turn has gone to another worker."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final, Protocol


class Outside(Protocol):
    """A turn's hold on the world outside."""

    @property
    def token(self) -> int:
        """That of the lease: it only grows within a fence."""
        ...

    @property
    def fence(self) -> str:
        """What the lease is on: the session's turns, or one subagent."""
        ...

    async def until_doubtful(self) -> None:
        """Return when the turn may not be ours much longer: whatever runs outside must be ended
        now."""
        ...

    async def copies(self) -> Mapping[str, bytes]:
        """Files of the turn that are not in its workspace, by name, for those who work in there.
        Raises ToolFailed."""
        ...


class Unfenced:
    """The hold of an agent without a lease."""

    token: Final = 0
    fence: Final = ""

    async def until_doubtful(self) -> None:
        await asyncio.Event().wait()

    async def copies(self) -> Mapping[str, bytes]:
        return {}


UNFENCED: Final = Unfenced()
