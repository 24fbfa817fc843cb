"""The turn's two borders: the journal (what must survive) and the show (what is only shown)."""

from __future__ import annotations

from typing import Final, Protocol

from shared.messages.effects import Effect
from shared.messages.transcript import ApprovalEntry, LedgerEntry


class Journal(Protocol):
    """The write-ahead record of a turn, and its border with the fleet."""

    async def checkpoint(self) -> None:
        """Called before every model call and every tool batch. Waits while the turn is suspended.

        Raises TurnReleased, TurnStopped or LeaseLost when the turn must not go on here.
        """
        ...

    async def append(self, entry: LedgerEntry, effect: Effect | None = None) -> None:
        """Write one step, and carry out `effect` with it, both or neither; durable when this
        returns. Raises LeaseLost. Safe to call from several tasks."""
        ...

    async def park(self, question: ApprovalEntry, *, wait_s: float) -> None:
        """Ask a person, or wait on for the answer to a question that was asked, and give the turn
        up until then.

        Raises TurnParked; returns when `wait_s` went by and nobody answered. Raises LeaseLost,
        TurnStopped.
        """
        ...

    async def confirm(self) -> None:
        """Renew the lease now, before something that cannot be taken back. Raises LeaseLost."""
        ...


class Show(Protocol):
    """What people see while a turn runs. Losing any of it loses nothing. May raise TurnEnded, which
    ends the turn."""

    async def text(self, delta: str) -> None:
        """More text of the reply."""
        ...

    async def reset(self) -> None:
        """All text since the last reset is taken back."""
        ...

    async def progress(self, text: str) -> None:
        """A line about what is being done, such as `calculate("2+2")`."""
        ...


class Silent:
    """The Show of a turn that nobody watches."""

    async def text(self, delta: str) -> None:
        pass

    async def reset(self) -> None:
        pass

    async def progress(self, text: str) -> None:
        pass


SILENT: Final = Silent()
