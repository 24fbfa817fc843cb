"""Messages to a chat, the lines of a chat's log, and stored answers of requests over HTTP."""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from shared.messages.codec import Decoder
from shared.messages.live import Takeover
from shared.messages.transcript import ToolCall

OutboundKind = Literal["reply", "stopped", "apology", "notice", "command", "withdrawn"]
"""Kinds of messages. A notice and the answer to a command appear while a turn runs; the latter ends
every turn up to its `turn`. A withdrawn message is named in `in_reply_to` and gets no answer."""


ApprovalState = Literal["open", "yes", "no"]


class Approval(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A question whether a tool may run, or (`yes`, `no`) its answer. `digest` identifies the exact
    arguments; `arguments` shows them whole, with known secrets named. After `expires_at` (ms) it
    counts as a no. `sources`: it is asked after reading these. `touches` says what the call
    reaches, `safe` that it is known to change nothing. `standing`: a yes can be given for good, or
    was. `by` is the sender who answered, `by_name` their name, `where` the device or channel."""

    id: str
    state: ApprovalState
    tool: str
    arguments: str = ""
    digest: str = ""
    expires_at: int = 0
    by: str = ""
    sources: tuple[str, ...] = ()
    touches: tuple[str, ...] = ()
    safe: bool = False
    standing: bool = False
    by_name: str = ""
    where: str = ""


class WaitingCalls(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Functions that the program of a turn is asked to run. After `expires_at` (ms) their results
    come too late."""

    calls: tuple[ToolCall, ...]
    expires_at: int = 0


Rating = Literal["up", "down", ""]
"""A person's opinion of an answer; "" takes it back."""


class AnswerRating(msgspec.Struct, frozen=True):
    """A rating of the line `seq`, which is an answer. The newest one of a line counts."""

    seq: int
    rating: Rating = ""


class BranchOrigin(msgspec.Struct, frozen=True, kw_only=True):
    """The chat of which this one is a branch, as the page names it, its title at that time, and the
    number of its answer with which the branch begins."""

    chat: str
    title: str
    seq: int


class TokensUsed(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Tokens used by a turn's last attempt. `cached`: of the prompt, from a provider's cache."""

    prompt: int = 0
    completion: int = 0
    cached: int = 0


CONTEXT_SHOWN_PERCENT: Final = 70
"""Below it a chat is far from its limit: nothing is said unasked."""


def percent_full(context: int, window: int) -> int:
    """Return the share of a model's window that a call took; 0 if the window is unknown."""
    return 100 * context // window if window else 0


class WorkDone(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How a reply came about: the model, the number of tool calls and of attempts; what the last
    attempt cost in USD (0 = nothing that is known) and how long it took in ms; whether thoughts of
    the model are kept; the tokens of its last call, and those that it takes (0 = unknown)."""

    model: str = ""
    usd: float = 0.0
    ms: int = 0
    attempts: int = 1
    tools: int = 0
    thoughts: bool = False
    context: int = 0
    window: int = 0

    @property
    def context_percent(self) -> int:
        """Part of the model's window that is full; 0 if nobody knows."""
        return percent_full(self.context, self.window)


class ReplyPart(msgspec.Struct, frozen=True):
    """A text of a turn before its last one: an `answer` after which messages joined, a `remark`
    before tools ran, or one that the message tool `sent`, whose text is a line of its own."""

    kind: Literal["answer", "remark", "sent"]
    text: str = ""


class OutboundMessage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="t", tag="out"):
    """One message from Shoal to a chat. `turn` is the number of the message it answers,
    `in_reply_to` the ids of those messages.

    `media` are references (`shared.media.reference`), `buttons` texts that a person may send with
    one press. `sent_by_tool` marks a notice that the agent sent by its message tool during a turn;
    the reply that ends such a turn has no content and is not shown. `approval` marks a notice that
    asks for an approval, or shows the answer. `unfinished` marks a reply that is not whole and says
    why: too many rounds, or a budget that is used up. `sources` mark the turn of a reply (see
    shared.messages.sources). `traceparent` is W3C trace context. `failed` is the reason of an
    apology, as its dead letter has it, and `refusal` what the model's provider said, for the owner
    alone. `takeovers`: workers that died while they wrote this reply; `work`: how it came about.
    `parts` are the texts before the last one, for programs, whose streams cannot take text back.
    `calls` marks a notice at which the turn waits for its program; its `parts` are all the texts.
    `rated` marks a line that rates an answer and is not shown itself: kind `withdrawn`, of no message.
    `branch_of` marks the first line of a branch."""

    content: str
    turn: int
    in_reply_to: tuple[str, ...] = ()
    kind: OutboundKind = "reply"
    media: tuple[str, ...] = ()
    reply_to: str | None = None
    buttons: tuple[str, ...] = ()
    at: int = 0
    sent_by_tool: bool = msgspec.field(default=False, name="said")
    approval: Approval | None = None
    v: int = 1
    usage: TokensUsed | None = None
    unfinished: bool = False
    traceparent: str | None = None
    sources: tuple[str, ...] = ()
    failed: str = ""
    refusal: str = ""
    takeovers: tuple[Takeover, ...] = ()
    work: WorkDone | None = None
    parts: tuple[ReplyPart, ...] = ()
    calls: WaitingCalls | None = None
    rated: AnswerRating | None = None
    branch_of: BranchOrigin | None = None


class UserLine(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="t", tag="said"):
    """A person's own message in the chat's log, so that their other devices show it too. `replaces`
    is the number of the turn that it takes the place of (0 = none)."""

    id: str
    text: str
    at: int = 0
    media: tuple[str, ...] = ()
    v: int = 1
    replaces: int = 0


LogLine = OutboundMessage | UserLine


def with_reason(apology: str, words: str) -> str:
    """Return an apology with what the model's provider said, as the owner reads it."""
    return f"{apology}\n\nThe provider said: {words}" if words else apology


decode_line: Decoder[LogLine] = Decoder(LogLine)


class RequestFailed(msgspec.Struct, frozen=True, kw_only=True):
    """Reason why there is no text: an HTTP status, a code for programs, a message for people."""

    status: int
    code: str
    message: str


class StoredAnswer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="t", tag="answer"):
    """The text, or the reason why there is none, for a client that repeats its request. `length`:
    something was left out, as the text says. `stopped`: by a person or their program. `tool_calls`:
    the program is to run `calls`."""

    text: str = ""
    finish: Literal["stop", "length", "tool_calls"] = "stop"
    usage: TokensUsed | None = None
    failed: RequestFailed | None = None
    v: int = 1
    stopped: bool = False
    calls: tuple[ToolCall, ...] = ()


decode_answer: Decoder[StoredAnswer] = Decoder(StoredAnswer, limit_bytes=1024 * 1024)
