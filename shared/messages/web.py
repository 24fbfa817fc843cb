"""The frames of the web socket: JSON objects, told apart by `type`. docs/web.md explains each. The
gateway and `shoal chat` share them. A client passes over what a newer gateway adds: unknown fields,
unknown values of `kind` and `state`, and frames of an unknown type."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Final, Generic, Literal, TypeVar

from msgspec import Meta, Struct, field

FRAME_LIMIT_BYTES: Final = 2 * 1024 * 1024
"""A larger client frame ends the socket. A message that is merely too long gets an answer."""

Seq = Annotated[int, Meta(ge=0, le=2**53 - 1)]
"""The number of a log line or of a turn; JavaScript holds integers up to 2**53 - 1 exactly."""

LineT = TypeVar("LineT")

# --- frames of a client


class HelloFrame(Struct, frozen=True, tag_field="type", tag="hello"):
    """The first frame: the client's secret."""

    token: str


class SendFrame(Struct, frozen=True, omit_defaults=True, tag_field="type", tag="message"):
    """A message to the agent. `id` is a UUID of the client's; a second frame with the same id is
    the same message. `media` names files by the `ref` that their upload returned. `traceparent` is
    the client's (W3C)."""

    id: str
    chat: str
    text: str
    media: tuple[str, ...] = ()
    traceparent: str | None = None


class StopFrame(Struct, frozen=True, tag_field="type", tag="stop"):
    """End this turn; without a number the turn that runs or is next."""

    chat: str
    turn: Seq | None = None


class ResumeFrame(Struct, frozen=True, omit_defaults=True, tag_field="type", tag="resume"):
    """Show the chat from the line after number `after` on, then everything that happens in it.
    `mark` is that of the line `after` (0: unknown). If the log has another line there, the client's
    copy is reset."""

    chat: str
    after: Seq = 0
    mark: Seq = 0


class ListChatsFrame(Struct, frozen=True, tag_field="type", tag="chats"):
    """List the chats of this principal."""


class ReadHistoryFrame(Struct, frozen=True, omit_defaults=True, tag_field="type", tag="history"):
    """Read the newest lines, or those before number `before`."""

    chat: str
    before: Seq | None = None


class AckFrame(Struct, frozen=True, tag_field="type", tag="ack"):
    """Every line up to `seq` has been seen."""

    chat: str
    seq: Seq


class WithdrawFrame(Struct, frozen=True, tag_field="type", tag="withdraw"):
    """Take back a message that waits; without a chat, in whichever shown chat it waits."""

    id: str
    chat: str | None = None


class ApproveFrame(Struct, frozen=True, tag_field="type", tag="approve"):
    """Decide whether a tool may run; with `digest` only for the arguments that its frame showed."""

    chat: str
    call: str
    yes: bool
    digest: str = ""


ChatFrame = ResumeFrame | ListChatsFrame | ReadHistoryFrame | AckFrame
ClientFrame = HelloFrame | SendFrame | StopFrame | WithdrawFrame | ApproveFrame | ChatFrame

# --- frames of the gateway


class CommandRow(Struct, frozen=True):
    """A chat command as channels offer it."""

    name: str
    about: str


class WelcomeFrame(Struct, frozen=True, tag_field="type", tag="welcome"):
    """The token is valid. A message may be one of `commands`, with a slash before its name, and may
    have `files` files of `file_bytes` bytes each."""

    principal: str
    version: str
    commands: Sequence[CommandRow] = ()
    files: int = 0
    file_bytes: int = 0


class AcceptedFrame(Struct, frozen=True, tag_field="type", tag="accepted"):
    """The message is durable. `ahead` turns come before it; `turn` is its number, 0: none."""

    id: str
    chat: str
    ahead: int
    turn: int


class MediaFrame(Struct, frozen=True, omit_defaults=True):
    """A file of a line. Messages name it by `ref`; address `path` needs the token; `size` in
    bytes."""

    ref: str
    path: str
    name: str
    type: str
    size: int
    about: str
    image: bool = False


class MessageFrame(Struct, frozen=True, omit_defaults=True, tag_field="type", tag="message"):
    """A line of the log: a message of the person's, from this device or another. Every line has its
    `mark`, which `resume` sends back."""

    chat: str
    seq: int
    id: str
    text: str
    at: int
    media: Sequence[MediaFrame] = ()
    mark: int = 0


Origin = Literal["", "schedule", "subagent"]
"""Origin of a turn: a person's message, a schedule, or the report of a subagent."""


class ReplyFrame(Struct, frozen=True, omit_defaults=True, tag_field="type", tag="reply"):
    """A line of the log: a message of Shoal's. `html` is `text` rendered safely. `kind` is an
    `OutboundKind`. `sent_by_tool` (`said` on the wire) marks a notice that the agent sent by its
    message tool; the reply that ends such a turn has no text and is not shown. `buttons` are
    suggested answers."""

    chat: str
    seq: int
    turn: int
    text: str
    html: str
    in_reply_to: Sequence[str]
    kind: str
    at: int
    media: Sequence[MediaFrame] = ()
    buttons: Sequence[str] = ()
    sent_by_tool: bool = field(default=False, name="said")
    about: Origin = ""
    mark: int = 0


class ApprovalFrame(Struct, frozen=True, omit_defaults=True, tag_field="type", tag="approval"):
    """A line of the log: a request to run a tool with these arguments, or its outcome. `state` is
    an `ApprovalState`: `open`, or the decision and who made it (`by`). `call` names the request;
    after `expires_at` (ms) it counts as refused. `text` and `html` are the same for people."""

    chat: str
    seq: int
    turn: int
    call: str
    state: str
    tool: str
    text: str
    html: str
    at: int
    arguments: str = ""
    digest: str = ""
    expires_at: int = 0
    by: str = ""
    mark: int = 0


LineFrame = MessageFrame | ReplyFrame | ApprovalFrame


class TurnFrame(Struct, frozen=True, tag_field="type", tag="turn"):
    """A turn began or ended; `state` is a `TurnState`."""

    chat: str
    turn: int
    state: str
    attempt: int


class DeltaFrame(Struct, frozen=True, omit_defaults=True, tag_field="type", tag="delta"):
    """More text of the running reply; see `shared.messages.live.DeltaEvent`."""

    chat: str
    turn: int
    attempt: int
    seq: int
    text: str
    full: bool = False


class JoinedFrame(Struct, frozen=True, tag_field="type", tag="joined"):
    """Messages that waited, by their numbers, are answered by a turn that runs."""

    chat: str
    turn: int
    messages: Sequence[int]


class ProgressFrame(Struct, frozen=True, tag_field="type", tag="progress"):
    """Progress of the agent while a turn runs."""

    chat: str
    turn: int
    text: str


class ResumedFrame(Struct, frozen=True, omit_defaults=True, tag_field="type", tag="resumed"):
    """All lines up to `seq`, whose mark is `mark`, have been sent. `running` is the turn that runs
    or is next. `reset` means that the client knew lines that the log does not have: the store lost
    its tail, and what was sent before this frame is all there is."""

    chat: str
    seq: int
    running: int | None
    reset: bool = False
    mark: int = 0


class ChatRow(Struct, frozen=True):
    """One chat of a list; `at` is its last activity in ms."""

    chat: str
    title: str
    at: int
    running: bool


class ChatListFrame(Struct, frozen=True, tag_field="type", tag="chats"):
    """The person's chats, the latest first."""

    chats: Sequence[ChatRow]


class HistoryFrame(Struct, Generic[LineT], frozen=True, tag_field="type", tag="history"):
    """A piece of the log, oldest first. `more` says whether older lines exist. A client reads the
    lines raw, so that one line of an unknown type does not cost it the others."""

    chat: str
    lines: Sequence[LineT]
    more: bool


class ErrorFrame(Struct, frozen=True, omit_defaults=True, tag_field="type", tag="error"):
    """A refused frame: `code` for programs, `message` for people, `retry_after` in seconds."""

    code: str
    message: str
    id: str | None = None
    chat: str | None = None
    retry_after: float | None = None
