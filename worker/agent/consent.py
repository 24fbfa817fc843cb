"""Approval of a tool call: its state in the ledger, and the reason why a call must not run."""

from __future__ import annotations

import msgspec

from shared.messages.transcript import ApprovalEntry, DecisionEntry
from worker.agent.model.model import ToolCallRequest
from worker.agent.ports import ApprovalNeed, Consent, Journal


class ApprovalState(msgspec.Struct, frozen=True):
    """The ledger's record of a call that needs approval. `decision` is None while the question is
    open, and after it timed out."""

    question: ApprovalEntry
    decision: DecisionEntry | None = None


async def refusal_for_call(
    consent: Consent, journal: Journal, call: ToolCallRequest, need: ApprovalNeed, asked: ApprovalState | None
) -> str:
    """Return why a call must not run, as a text for the model; `""` if it may run. Raises
    TurnParked when a person has to answer first."""
    # A question in the ledger beats `need`: once a person was asked, the answer is kept to, even if
    # a successor with other settings would no longer ask.
    if asked is None:
        if need.kind == "free":
            return ""
        if need.kind == "refuse":
            return f"Error: {call.name!r} was not run: {need.why}."
        asked = ApprovalState(consent.question(call))
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
    # The person agreed to exact arguments; anything else would run without approval.
    if not consent.covers(asked.question, call):
        return f"Error: {call.name!r} was not run: its arguments are not those that the user said yes to."
    return ""
