"""What a tool can do with the schedules of the chat that it is used in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

from shared.errors import ToolFailed
from shared.messages.schedule import Misfire, Plan, Schedule, Standing


class ChatSchedules(Protocol):
    """The schedules of one chat, for one turn. Every method raises ToolFailed, with a text for the
    model, for what is not there or not allowed, and LeaseLost when the turn must not write any
    more."""

    async def add(
        self, text: str, plan: Plan, *, misfire: Misfire, timezone: str, key: str, now_ms: int
    ) -> tuple[Schedule, int]:
        """Plan a text; what is there now, and its next tick in ms. The same `key` again, also by a
        later worker of this turn, plans nothing anew."""
        ...

    async def listed(self) -> Sequence[Standing]:
        """All there are, the next one first."""
        ...

    async def remove(self, id: str) -> None:
        """Take one out."""
        ...


class NoSchedules:
    """Those of an agent that may not plan anything."""

    async def add(
        self, text: str, plan: Plan, *, misfire: Misfire, timezone: str, key: str, now_ms: int
    ) -> tuple[Schedule, int]:
        raise ToolFailed("nothing can be planned here")

    async def listed(self) -> Sequence[Standing]:
        return ()

    async def remove(self, id: str) -> None:
        raise ToolFailed(f"there is no schedule {id!r} here")


NO_SCHEDULES: Final = NoSchedules()
