"""One turn of the agent: its input, its result, and the part of it that history keeps."""

from __future__ import annotations

from typing import Literal

import msgspec

from shared.clock import SYSTEM_CLOCK, Clock
from shared.messages.inbound import TurnOptions
from shared.messages.transcript import AssistantEntry, LedgerEntry, ToolEntry, TranscriptEntry, UserEntry
from worker.agent import ports
from worker.agent.history import SAVED_RESULT_CHARS, SAVED_THOUGHT_CHARS
from worker.agent.hook import AgentHook
from worker.agent.model.compact import Compact
from worker.agent.model.model import Image, TokenUsage
from worker.agent.ports import NULL_PORTS, FollowupMessage

TurnOutcome = Literal["done", "round_cap", "empty", "budget", "length"]


class AgentRunSpec(msgspec.Struct, frozen=True, kw_only=True):
    """Everything a turn depends on except its model, its tools and its journal.

    `entry` is the message to answer; its `turn` names the turn. `images` go out with it; its text
    only names them. `history` is the conversation before it, `steps` are calls of the program's own
    functions with their results, which came with it, `resume` the ledger of an earlier
    worker, `joined` the messages in that ledger by their numbers, `begun` the text after that ledger
    that people have seen. With `continue_partial` a reply whose stream breaks is continued, not
    begun again. `timezone` is an IANA name. The sender is set in groups. `context_tokens` is the
    model's limit, 0 if there is none; `window_tokens` is that which the model is known to have, 0 if
    it is assumed. A prompt over the share `compact_at` of it is compacted to its
    newest `compact_keep` messages. A reply cut by its length is continued up to `continuations`
    times. History keeps `saved_result_chars` of a tool's result, and `saved_thought_chars` of the
    thoughts of a reply. Hooks that are not trusted belong in a CompositeHook. Without `compact` a
    prompt that is too big is sent as it is. Results of the program's functions are waited for
    `calls_wait_s`; then the turn ends, or goes on without them if it `goes_on_unanswered`.
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
    steps: tuple[AssistantEntry | ToolEntry, ...] = ()
    resume: tuple[LedgerEntry, ...] = ()
    joined: dict[int, FollowupMessage] = {}
    begun: str = ""
    continue_partial: bool = True
    timezone: str = "UTC"
    max_rounds: int = 40
    memory_window: int = 100
    max_tokens: int = 4096
    temperature: float = 0.7
    top_p: float | None = None
    seed: int | None = None
    continuations: int = 3
    context_tokens: int = 0
    window_tokens: int = 0
    compact_at: float = 0.8
    compact_keep: int = 20
    saved_result_chars: int = SAVED_RESULT_CHARS
    saved_thought_chars: int = SAVED_THOUGHT_CHARS
    options: TurnOptions = TurnOptions()
    calls_wait_s: float = 600.0
    goes_on_unanswered: bool = False
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
    """A finished turn. `entries` are for history; `usage` counts this attempt, `rounds` all.
    `media` are references of files that go with the reply, `model` is the one that was asked."""

    content: str
    entries: tuple[TranscriptEntry, ...]
    rounds: int
    usage: TokenUsage
    outcome: TurnOutcome = "done"
    media: tuple[str, ...] = ()
    model: str = ""
