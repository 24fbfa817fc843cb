"""The end of a ledger, from which a turn goes on."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from shared.messages.transcript import (
    ApprovalEntry,
    AssistantEntry,
    DecisionEntry,
    EffectEntry,
    IntentEntry,
    JoinEntry,
    LedgerEntry,
    ToolEntry,
)


class ApprovalState(msgspec.Struct, frozen=True):
    """The ledger's record of a call that needs approval. `decision` is None until one came."""

    question: ApprovalEntry
    decision: DecisionEntry | None = None


class StoredReply(msgspec.Struct, frozen=True):
    """The end of a ledger: the last stored reply and the state of its calls, by their ids.
    `intents` are calls that were begun, `effects` their effects inside Shoal so far, `results` the
    finished ones, `approvals` those that a person was asked about."""

    reply: AssistantEntry
    intents: dict[str, IntentEntry] = {}
    results: dict[str, ToolEntry] = {}
    effects: dict[str, list[EffectEntry]] = {}
    approvals: dict[str, ApprovalState] = {}

    @property
    def answered(self) -> bool:
        """True if every call has its result, so that the next round can begin."""
        calls = self.reply.tool_calls
        return bool(calls) and all(call.id in self.results for call in calls)


def resume_point(ledger: Iterable[LedgerEntry]) -> StoredReply | None:
    """Return the last stored reply and the state of its calls; None if empty or answered."""
    point: StoredReply | None = None
    for entry in ledger:
        match entry:
            case AssistantEntry():
                point = StoredReply(entry)
            case JoinEntry() if point is not None and not point.reply.tool_calls:
                point = None  # messages joined after an answer: the turn goes on with them
            case IntentEntry() if point is not None:
                point.intents[entry.call_id] = entry
            case EffectEntry() if point is not None:
                point.effects.setdefault(entry.call_id, []).append(entry)
            case ToolEntry() if point is not None:
                point.results[entry.call_id] = entry
            case ApprovalEntry() if point is not None:
                point.approvals[entry.call_id] = ApprovalState(entry)
            case DecisionEntry(call_id=id) if point is not None and id in point.approvals:
                point.approvals[id] = ApprovalState(point.approvals[id].question, entry)
    return point
