"""One turn: what it is given, what comes of it, and what of it is kept."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, Literal, TypeGuard

import msgspec

from shared.messages.transcript import (
    ApprovalEntry,
    AssistantEntry,
    DecisionEntry,
    EffectEntry,
    IntentEntry,
    LedgerEntry,
    TakenEntry,
    ToolCall,
    ToolEntry,
    TranscriptEntry,
    UserEntry,
)
from worker.agent.consent import NO_CONSENT, Asked, Consent
from worker.agent.followups import Said
from worker.agent.image import Image
from worker.agent.model.model import Usage
from worker.agent.outside import UNFENCED, Outside
from worker.agent.pictures import NO_PICTURES, Pictures
from worker.agent.schedules import NO_SCHEDULES, ChatSchedules
from worker.agent.tools.tool import NO_FILES, Files

SAVED_RESULT_CHARS: Final = 500
NO_RESULT: Final = "Error: there is no result; the turn ended before this call did. Verify before repeating."

TurnOutcome = Literal["done", "round_cap", "empty", "budget"]


class AgentRunSpec(msgspec.Struct, frozen=True, kw_only=True):
    """Everything a turn depends on besides its tools and its model.

    `entry` is the message to answer; its `turn` names the turn. `images` go out with it, its text
    only names them. `history` is the conversation before it, `resume` the ledger that an earlier
    worker left, `joined` the messages that it names, by their numbers. `timezone` is an IANA name.
    The sender is set in groups. `context_tokens` is the model's limit, 0 when unknown; a prompt
    over `compact_at` of it is compacted, and then the newest `compact_keep` messages stay. A reply
    cut by its length is continued up to `continuations` times. History keeps `saved_result_chars`
    of a tool's result.
    """

    session: str
    entry: UserEntry
    images: tuple[Image, ...] = ()
    channel: str = ""
    chat_id: str = ""
    sender_name: str = ""
    sender_id: str = ""
    system: str = ""
    history: tuple[TranscriptEntry, ...] = ()
    resume: tuple[LedgerEntry, ...] = ()
    joined: dict[int, Said] = {}
    timezone: str = "UTC"
    max_rounds: int = 40
    memory_window: int = 100
    max_tokens: int = 4096
    temperature: float = 0.7
    continuations: int = 3
    context_tokens: int = 0
    compact_at: float = 0.8
    compact_keep: int = 20
    saved_result_chars: int = SAVED_RESULT_CHARS
    files: Files = NO_FILES
    pictures: Pictures = NO_PICTURES
    outside: Outside = UNFENCED
    schedules: ChatSchedules = NO_SCHEDULES
    consent: Consent = NO_CONSENT

    @property
    def turn(self) -> int:
        return self.entry.turn


class AgentResult(msgspec.Struct, frozen=True, kw_only=True):
    """A finished turn. `entries` is what history gains; `usage` counts this attempt only, `rounds`
    all of them."""

    content: str
    entries: tuple[TranscriptEntry, ...]
    rounds: int
    usage: Usage
    outcome: TurnOutcome = "done"


class StoredReply(msgspec.Struct, frozen=True):
    """Where a ledger ends: the last stored reply, the calls begun (intents), what each has done
    inside Shoal (effects), the calls answered (results), and those that a person was asked
    about."""

    reply: AssistantEntry
    intents: dict[str, IntentEntry]
    results: dict[str, ToolEntry]
    effects: dict[str, list[EffectEntry]] = {}
    asked: dict[str, Asked] = {}

    @property
    def answered(self) -> bool:
        """Whether every call has its result, so that the next round can begin."""
        return bool(self.reply.tool_calls) and all(call.id in self.results for call in self.reply.tool_calls)


def resume_point(ledger: Iterable[LedgerEntry]) -> StoredReply | None:
    """The last stored reply and how far it got; None for an empty ledger, and behind a whole
    answer."""
    point: StoredReply | None = None
    for entry in ledger:
        match entry:
            case AssistantEntry():
                point = StoredReply(entry, {}, {}, {}, {})
            case TakenEntry() if point is not None and not point.reply.tool_calls:
                point = None  # an answer that messages came behind: the turn goes on with them
            case IntentEntry() if point is not None:
                point.intents[entry.call_id] = entry
            case EffectEntry() if point is not None:
                point.effects.setdefault(entry.call_id, []).append(entry)
            case ToolEntry() if point is not None:
                point.results[entry.call_id] = entry
            case ApprovalEntry() if point is not None:
                point.asked[entry.call_id] = Asked(entry)
            case DecisionEntry() if point is not None and entry.call_id in point.asked:
                point.asked[entry.call_id] = Asked(point.asked[entry.call_id].question, entry)
    return point


def saved_history(
    entry: UserEntry,
    steps: Iterable[LedgerEntry | TranscriptEntry],
    final: AssistantEntry | None = None,
    *,
    joined: Iterable[UserEntry] = (),
    result_chars: int = SAVED_RESULT_CHARS,
) -> tuple[TranscriptEntry, ...]:
    """What history gains from a turn: the message and those that joined it, its steps, one final
    text; also from a turn that was stopped. An answer that messages came behind is part of the
    final text.

    `steps` is its ledger, or the part of it that is said. Tool results are cut to `result_chars`,
    stand in the order of their calls, and none is missing.
    """
    kept: list[TranscriptEntry] = [entry, *joined]
    kept.extend(paired(step for step in steps if isinstance(step, ToolEntry) or _calls(step)))
    if final is not None:
        kept.append(final)
    return tuple(_kept(item, result_chars) for item in kept)


def paired(entries: Iterable[TranscriptEntry]) -> list[TranscriptEntry]:
    """The same entries with every tool call followed by exactly one result, in the order of the
    calls.

    Results that no call asked for are dropped, missing ones are named as missing: providers refuse
    both.
    """
    fixed: list[TranscriptEntry] = []
    open_calls: tuple[ToolCall, ...] = ()
    results: dict[str, ToolEntry] = {}
    turn = 0
    for entry in entries:
        if isinstance(entry, ToolEntry):
            results.setdefault(entry.call_id, entry)
            continue
        if open_calls:
            fixed += _answers(open_calls, results, turn)
            open_calls = ()
        if results:
            results = {}
        fixed.append(entry)
        if isinstance(entry, AssistantEntry) and entry.tool_calls:
            open_calls, turn = entry.tool_calls, entry.turn
    return fixed + _answers(open_calls, results, turn)


def _answers(calls: Iterable[ToolCall], results: Mapping[str, ToolEntry], turn: int) -> list[ToolEntry]:
    """One result for each call."""
    return [
        results.get(call.id) or ToolEntry(call_id=call.id, name=call.name, content=NO_RESULT, turn=turn, ok=False)
        for call in calls
    ]


def _calls(step: LedgerEntry | TranscriptEntry) -> TypeGuard[AssistantEntry]:
    return isinstance(step, AssistantEntry) and bool(step.tool_calls)


def _kept(entry: TranscriptEntry, result_chars: int) -> TranscriptEntry:
    match entry:
        case ToolEntry():
            return _short(msgspec.structs.replace(entry, images=()), result_chars)
        case AssistantEntry(seen=seen) if seen:
            return msgspec.structs.replace(entry, seen="")  # of use to a successor in the same turn only
        case _:
            return entry


def _short(entry: ToolEntry, chars: int) -> ToolEntry:
    if len(entry.content) <= chars:
        return entry
    mark = "\n... (cut)"
    return msgspec.structs.replace(entry, content=entry.content[: max(0, chars - len(mark))] + mark)
