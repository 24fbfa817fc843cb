"""Messages that come while a turn is answered, and join it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

import msgspec

from shared.messages.transcript import UserEntry
from worker.agent.image import Image


class Said(msgspec.Struct, frozen=True):
    """A message that joined a turn. `images` go out with it, its text only names them. The sender
    is set in groups."""

    entry: UserEntry
    images: tuple[Image, ...] = ()
    sender_name: str = ""
    sender_id: str = ""


class Followups(Protocol):
    """Where further messages of a running turn come from."""

    @property
    def open(self) -> bool:
        """Whether messages that come while the turn runs may join it."""
        ...

    async def take(self) -> Sequence[Said]:
        """The messages that join now, in order; when this returns the ledger says where they stand.

        Called before every model call. Raises TurnStopped, LeaseLost.
        """
        ...


class NoFollowups:
    """A turn that nothing joins."""

    open = False

    async def take(self) -> Sequence[Said]:
        return ()


NO_FOLLOWUPS: Final = NoFollowups()
