"""A turn in records: the part of it that history keeps, and the end of a ledger, from which it goes
on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from shared.messages.transcript import (
    ApprovalEntry,
    AssistantEntry,
    CallsEntry,
    DecisionEntry,
    EffectEntry,
    IntentEntry,
    JoinEntry,
    LedgerEntry,
    ToolCall,
    ToolEntry,
    TranscriptEntry,
    UserEntry,
)

SAVED_RESULT_CHARS: Final = 500
SAVED_THOUGHT_CHARS: Final = 4000
CUT: Final = "\n... (cut)"
NO_RESULT: Final = "Error: there is no result; the turn ended before this call did. Verify before repeating."


def saved_history(
    entry: UserEntry,
    steps: Iterable[LedgerEntry | TranscriptEntry],
    final: AssistantEntry | None = None,
    *,
    joined: Iterable[UserEntry] = (),
    result_chars: int = SAVED_RESULT_CHARS,
    thought_chars: int = SAVED_THOUGHT_CHARS,
) -> tuple[TranscriptEntry, ...]:
    """Return the entries that history gains from a turn: the message and those that joined it, its
    steps, one final text. Also for a turn that was stopped. `steps` is its ledger or its
    transcript. An answer that was followed by further messages is left out, because the final text
    contains it. Results are cut to `result_chars`, in their calls' order; none is missing. Thoughts
    are cut to `thought_chars`: no model reads them again, only people in the work log."""
    calling = (
        step for step in steps if isinstance(step, ToolEntry) or (isinstance(step, AssistantEntry) and step.tool_calls)
    )
    kept = [entry, *joined, *pair_calls_with_results(calling), *([] if final is None else [final])]
    return tuple(_history_form(item, result_chars, thought_chars) for item in kept)


def pair_calls_with_results(entries: Iterable[TranscriptEntry]) -> list[TranscriptEntry]:
    """Return the entries with every tool call followed by exactly one result, in the calls' order.
    Results without a call are dropped, a missing one becomes a note: providers refuse both."""
    fixed: list[TranscriptEntry] = []
    open_calls: tuple[ToolCall, ...] = ()
    results: dict[str, ToolEntry] = {}
    turn = 0
    for entry in entries:
        if isinstance(entry, ToolEntry):
            results.setdefault(entry.call_id, entry)
            continue
        if open_calls:
            fixed += _results_of(open_calls, results, turn)
            open_calls = ()
        if results:
            results = {}  # a fresh dict: ids may repeat in later rounds of an old history
        fixed.append(entry)
        if isinstance(entry, AssistantEntry) and entry.tool_calls:
            open_calls = entry.tool_calls
            turn = entry.turn
    return fixed + _results_of(open_calls, results, turn)


def _results_of(calls: Iterable[ToolCall], results: Mapping[str, ToolEntry], turn: int) -> list[ToolEntry]:
    return [
        results.get(call.id) or ToolEntry(call_id=call.id, name=call.name, content=NO_RESULT, turn=turn, ok=False)
        for call in calls
    ]


def _history_form(entry: TranscriptEntry, result_chars: int, thought_chars: int) -> TranscriptEntry:
    match entry:
        case ToolEntry():
            return msgspec.structs.replace(entry, images=(), content=_cut(entry.content, result_chars))
        case AssistantEntry(seen=seen, reasoning=thoughts) if seen or thoughts:
            kept = _cut(thoughts, thought_chars) if thoughts and thought_chars else None
            # What was seen is of use only to a successor in the same turn.
            return msgspec.structs.replace(entry, seen="", reasoning=kept)
        case _:
            return entry


def _cut(text: str, chars: int) -> str:
    return text if len(text) <= chars else text[: max(0, chars - len(CUT))] + CUT


class ApprovalState(msgspec.Struct, frozen=True):
    """The ledger's record of a call that needs approval. `decision` is None until one came."""

    question: ApprovalEntry
    decision: DecisionEntry | None = None


class StoredReply(msgspec.Struct, frozen=True):
    """The end of a ledger: the last stored reply and the state of its calls, by their ids.
    `intents` are calls that were begun, `effects` their effects inside Shoal so far, `results` the
    finished ones, `approvals` those that a person was asked about, `asked` those that the program of
    the turn was asked to run."""

    reply: AssistantEntry
    intents: dict[str, IntentEntry] = {}
    results: dict[str, ToolEntry] = {}
    effects: dict[str, list[EffectEntry]] = {}
    approvals: dict[str, ApprovalState] = {}
    asked: CallsEntry | None = None

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
            case CallsEntry() if point is not None:
                point = msgspec.structs.replace(point, asked=entry)
    return point
