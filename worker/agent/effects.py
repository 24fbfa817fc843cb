"""What a tool does inside Shoal besides its answer."""

from __future__ import annotations

from typing import Final, Protocol

from shared.errors import ToolFailed
from shared.messages.effects import Effect


class Effects(Protocol):
    """How a call does something inside Shoal exactly once, whatever becomes of its worker."""

    async def carry_out(self, effect: Effect) -> bool:
        """Do it, in one step with its record. Whether it was done now: False when an earlier
        attempt at this call did.

        A call with several effects carries them out in the same order at each attempt. Its tool is
        `idempotent`. Raises LeaseLost, and ToolFailed when this agent must not.
        """
        ...

    async def border(self) -> None:
        """Called now and then by a tool that only waits: raises what ends the turn here, such as a
        drain. A successor makes the call again."""
        ...


class NoEffects:
    """Those of an agent that acts on nothing but its own answer."""

    async def carry_out(self, effect: Effect) -> bool:
        raise ToolFailed("this agent can only answer; say what should be done instead")

    async def border(self) -> None:
        pass


NO_EFFECTS: Final = NoEffects()
