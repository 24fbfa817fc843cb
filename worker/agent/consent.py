"""A person's yes to a call: whether it is needed, and what becomes of the call without it."""

from __future__ import annotations

from typing import Final, Literal, NamedTuple, Protocol

import msgspec

from shared.messages.transcript import ApprovalEntry, DecisionEntry
from worker.agent.journal import Journal
from worker.agent.model.model import ToolCallRequest
from worker.agent.tools.tool import Safety


class Need(NamedTuple):
    """Whether a call runs as it is, only after a yes, or not at all because nobody can be asked;
    `why` goes to the model then."""

    kind: Literal["free", "ask", "refuse"]
    why: str = ""


FREE: Final = Need("free")


class Asked(msgspec.Struct, frozen=True):
    """What the ledger says of a call that needs a yes. No decision: nobody has answered, so far or
    in time."""

    question: ApprovalEntry
    decision: DecisionEntry | None = None


class Consent(Protocol):
    """Who decides, for one turn, what needs a yes."""

    @property
    def wait_s(self) -> float:
        """How long an answer counts."""
        ...

    def heard(self, call: ToolCallRequest) -> None:
        """The model knows the result of this call from now on."""
        ...

    def need(self, call: ToolCallRequest, safety: Safety | None) -> Need:
        """What this call needs, as things are now."""
        ...

    def question(self, call: ToolCallRequest) -> ApprovalEntry:
        """What a person is asked about it; the times are added when it is asked."""
        ...

    def same(self, question: ApprovalEntry, call: ToolCallRequest) -> bool:
        """Whether this call is exactly what was asked about."""
        ...


class NoConsent:
    """Nothing needs a yes."""

    wait_s = 0.0

    def heard(self, call: ToolCallRequest) -> None:
        pass

    def need(self, call: ToolCallRequest, safety: Safety | None) -> Need:
        return FREE

    def question(self, call: ToolCallRequest) -> ApprovalEntry:
        raise AssertionError(f"nobody is asked about {call.name!r}")

    def same(self, question: ApprovalEntry, call: ToolCallRequest) -> bool:
        return False


NO_CONSENT: Final = NoConsent()


async def withheld(consent: Consent, journal: Journal, call: ToolCallRequest, need: Need, asked: Asked | None) -> str:
    """Why a call must not run, for the model; `""` when it may. Raises TurnParked when a person has
    to answer first.

    What the ledger says counts more than `need`: who asked a person keeps to the answer.
    """
    if asked is None:
        if need.kind == "free":
            return ""
        if need.kind == "refuse":
            return f"Error: {call.name!r} was not run: {need.why}."
        asked = Asked(consent.question(call))
    if asked.decision is None:
        await journal.park(asked.question, wait_s=consent.wait_s)
        within = f"{consent.wait_s / 60:.0f} minutes" if consent.wait_s >= 120 else f"{consent.wait_s:.0f} seconds"
        return (
            f"Error: {call.name!r} was not run: it needs the user's yes, and nobody answered within {within}. Do not "
            "try it again by yourself; say what you wanted to do."
        )
    if not asked.decision.yes:
        return (
            f"Error: {call.name!r} was not run: the user said no. Do not try it again; go on without it, or ask what "
            "to do instead."
        )
    if not consent.same(asked.question, call):
        return f"Error: {call.name!r} was not run: its arguments are not those that the user said yes to."
    return ""
