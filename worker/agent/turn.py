"""One turn of the agent: its input, its result, and the part of it that history keeps."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, Literal

import msgspec

from shared.clock import SYSTEM_CLOCK, Clock
from shared.messages.transcript import (
    ApprovalEntry,
    AssistantEntry,
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
from worker.agent import ports
from worker.agent.hook import AgentHook
from worker.agent.model.compact import Compact
from worker.agent.model.model import Image, TokenUsage
from worker.agent.ports import NULL_PORTS, FollowupMessage

SAVED_RESULT_CHARS: Final = 500
NO_RESULT: Final = "Error: there is no result; the turn ended before this call did. Verify before repeating."

TurnOutcome = Literal["done", "round_cap", "empty", "budget"]


class AgentRunSpec(msgspec.Struct, frozen=True, kw_only=True):
    """Everything a turn depends on except its model, its tools and its journal.

    `entry` is the message to answer; its `turn` names the turn. `images` go out with it; its text
    only names them. `history` is the conversation before it, `resume` the ledger of an earlier
    worker, `joined` the messages in that ledger by their numbers. `timezone` is an IANA name. The
    sender is set in groups. `context_tokens` is the model's limit, 0 if unknown; a prompt over the
    share `compact_at` of it is compacted to its newest `compact_keep` messages. A reply cut by its
    length is continued up to `continuations` times. History keeps `saved_result_chars` of a tool's
    result. Hooks that are not trusted belong in a CompositeHook. Without `compact` a prompt that is
    too big is sent as it is.
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
    joined: dict[int, FollowupMessage] = {}
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
    hook: AgentHook = AgentHook()
    clock: Clock = SYSTEM_CLOCK
    compact: Compact | None = None
    progress: ports.TurnProgress = NULL_PORTS
    followups: ports.Followups = NULL_PORTS
    allowance: ports.Allowance = NULL_PORTS
    files: ports.Files = NULL_PORTS
    pictures: ports.Pictures = NULL_PORTS
    outside: ports.Outside = NULL_PORTS
    schedules: ports.ChatSchedules = NULL_PORTS
    consent: ports.Consent = NULL_PORTS

    @property
    def turn(self) -> int:
        return self.entry.turn


class AgentResult(msgspec.Struct, frozen=True, kw_only=True):
    """A finished turn. `entries` are for history; `usage` counts this attempt, `rounds` all."""

    content: str
    entries: tuple[TranscriptEntry, ...]
    rounds: int
    usage: TokenUsage
    outcome: TurnOutcome = "done"


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


def saved_history(
    entry: UserEntry,
    steps: Iterable[LedgerEntry | TranscriptEntry],
    final: AssistantEntry | None = None,
    *,
    joined: Iterable[UserEntry] = (),
    result_chars: int = SAVED_RESULT_CHARS,
) -> tuple[TranscriptEntry, ...]:
    """Return the entries that history gains from a turn: the message and those that joined it, its
    steps, one final text. Also for a turn that was stopped. `steps` is its ledger or its
    transcript. An answer that was followed by further messages is left out, because the final text
    contains it. Results are cut to `result_chars`, in their calls' order; none is missing."""
    calling = (
        step for step in steps if isinstance(step, ToolEntry) or (isinstance(step, AssistantEntry) and step.tool_calls)
    )
    kept = [entry, *joined, *pair_calls_with_results(calling), *([] if final is None else [final])]
    return tuple(_history_form(item, result_chars) for item in kept)


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
            open_calls, turn = entry.tool_calls, entry.turn
    return fixed + _results_of(open_calls, results, turn)


def _results_of(calls: Iterable[ToolCall], results: Mapping[str, ToolEntry], turn: int) -> list[ToolEntry]:
    return [
        results.get(call.id) or ToolEntry(call_id=call.id, name=call.name, content=NO_RESULT, turn=turn, ok=False)
        for call in calls
    ]


def _history_form(entry: TranscriptEntry, result_chars: int) -> TranscriptEntry:
    match entry:
        case ToolEntry():
            content, mark = entry.content, "\n... (cut)"
            if len(content) > result_chars:
                content = content[: max(0, result_chars - len(mark))] + mark
            return msgspec.structs.replace(entry, images=(), content=content)
        case AssistantEntry(seen=seen) if seen:
            return msgspec.structs.replace(entry, seen="")  # of use only to a successor in the same turn
        case _:
            return entry
