"""The frames of the web socket: JSON objects, told apart by `type`. docs/web.md explains each. The
gateway and `shoal chat` share them. A client passes over what a newer gateway adds: unknown fields,
unknown values of `kind` and `state`, and frames of an unknown type."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Final, Generic, Literal, TypeVar

from msgspec import Meta, Struct, field

from shared.messages.live import Takeover
from shared.messages.outbound import Rating, WorkDone

FRAME_LIMIT_BYTES: Final = 2 * 1024 * 1024
"""A larger client frame ends the socket. A message that is merely too long gets an answer."""

Seq = Annotated[int, Meta(ge=0, le=2**53 - 1)]
"""The number of a log line or of a turn; JavaScript holds integers up to 2**53 - 1 exactly."""

LineT = TypeVar("LineT")

# --- frames of a client


class HelloFrame(Struct, frozen=True, omit_defaults=True, tag_field="type", tag="hello"):
    """The first frame: the client's secret, the time zone of its person (an IANA name), and the
    kind of device that it is: `page`, `phone` or `terminal`."""

    token: str
    timezone: str = ""
    device: Annotated[str, Meta(max_length=32)] = ""


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


class ListChatsFrame(Struct, frozen=True, omit_defaults=True, tag_field="type", tag="chats"):
    """List the `limit` latest chats of this principal."""

    limit: Annotated[int, Meta(ge=1, le=1000)] = 200


class LabelFrame(Struct, frozen=True, omit_defaults=True, tag_field="type", tag="label"):
    """Give a chat another title, pin it above the others, or unpin it."""

    chat: str
    title: Annotated[str, Meta(max_length=1000)] | None = None
    pinned: bool | None = None


class DeleteFrame(Struct, frozen=True, tag_field="type", tag="delete"):
    """Delete a chat with its lines, memory and files. `undelete` takes it back within 10 s."""

    chat: str


class UndeleteFrame(Struct, frozen=True, tag_field="type", tag="undelete"):
    """Take back the deletion of a chat."""

    chat: str


class FollowFeedFrame(Struct, frozen=True, omit_defaults=True, tag_field="type", tag="feed"):
    """Tell from now on what happens in all chats of this principal. `after` is the `cursor` of the
    newest `feed` frame; without it the list of chats comes first."""

    after: Annotated[str, Meta(pattern=r"^([0-9]{1,16}-[0-9]{1,9})?$")] = ""


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


class ApproveFrame(Struct, frozen=True, omit_defaults=True, tag_field="type", tag="approve"):
    """Decide whether a tool may run; with `digest` only for the arguments that its frame showed.
    With `always` the yes stands for later calls of the chat, too."""

    chat: str
    call: str
    yes: bool
    digest: str = ""
    always: bool = False


class KillFrame(Struct, frozen=True, tag_field="type", tag="kill"):
    """Kill the worker that answers in this chat, as `kill -9` does. Only where `welcome` offers
    it."""

    chat: str


class SearchFrame(Struct, frozen=True, tag_field="type", tag="search"):
    """Find chats of this principal by a text of their title or their lines."""

    text: Annotated[str, Meta(max_length=200)]


class BranchFrame(Struct, frozen=True, tag_field="type", tag="branch"):
    """Make chat `to` from this one, up to its answer `seq`. A second frame with the same `to` is the
    same branch. The answer is a `chats` frame with its row."""

    chat: str
    seq: Seq
    to: str


class RateFrame(Struct, frozen=True, tag_field="type", tag="rate"):
    """Rate the answer `seq`, or with "" take that back. Every socket of the chat gets a line about
    it."""

    chat: str
    seq: Seq
    rating: Rating


ListFrames = ListChatsFrame | LabelFrame | DeleteFrame | UndeleteFrame | SearchFrame | FollowFeedFrame
AnswerFrames = BranchFrame | RateFrame
ChatFrame = ResumeFrame | ReadHistoryFrame | AckFrame | ListFrames | AnswerFrames
ClientFrame = HelloFrame | SendFrame | StopFrame | WithdrawFrame | ApproveFrame | KillFrame | ChatFrame

# --- frames of the gateway


class CommandRow(Struct, frozen=True):
    """A chat command as channels offer it."""

    name: str
    about: str


class WelcomeFrame(Struct, frozen=True, tag_field="type", tag="welcome"):
    """The token is valid. A message may be one of `commands`, with a slash before its name, and may
    have `files` files of `file_bytes` bytes each. With `first_run` the demo model answers, and this
    principal may choose another one (`POST /first-run`). With `kill` it may kill workers.
    `features` are frames that older gateways do not know: a page offers what its gateway can do.
    `presets` name the models that a chat may choose by `/model NAME`."""

    principal: str
    version: str
    commands: Sequence[CommandRow] = ()
    files: int = 0
    file_bytes: int = 0
    first_run: bool = False
    kill: bool = False
    features: Sequence[str] = ()
    presets: Sequence[str] = ()


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
    `mark`, which `resume` sends back. It takes the place of turn `replaces` and its messages (0 =
    of none)."""

    chat: str
    seq: int
    id: str
    text: str
    at: int
    media: Sequence[MediaFrame] = ()
    mark: int = 0
    replaces: int = 0


Origin = Literal["", "schedule", "subagent"]
"""Origin of a turn: a person's message, a schedule, or the report of a subagent."""


class ReplyFrame(Struct, frozen=True, omit_defaults=True, tag_field="type", tag="reply"):
    """A line of the log: a message of Shoal's. `html` is `text` rendered safely. `kind` is an
    `OutboundKind`. `sent_by_tool` (`said` on the wire) marks a notice that the agent sent by its
    message tool; the reply that ends such a turn has no text and is not shown. `buttons` are
    suggested answers. `sources` name strangers whose text the turn had read. `takeovers`: workers
    that died while they wrote it. `unfinished`: a limit ended it before the agent did. `work`: how
    it came about, with `tokens`; its steps are at `/work/{chat}/{turn}`. With `rates` it gives the
    line of that number the `rating`, and is not shown itself. `branch_of`: the chat begins as a branch
    of that one."""

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
    sources: Sequence[str] = ()
    takeovers: Sequence[Takeover] = ()
    unfinished: bool = False
    work: WorkDone | None = None
    tokens: int = 0
    rates: int = 0
    rating: Rating = ""
    branch_of: str = ""


class ApprovalFrame(Struct, frozen=True, omit_defaults=True, tag_field="type", tag="approval"):
    """A line of the log: a request to run a tool with these arguments, or its outcome. `state` is
    an `ApprovalState`: `open`, or the decision and who made it (`by`). `call` names the request;
    after `expires_at` (ms) it counts as refused. `text` and `html` are the same for people.
    `sources`: it is asked after reading these. `touches` says what the call reaches, `label: value`
    each; `safe`: it is known to change nothing. `standing`: a yes can be given for good, or was.
    `by_name` and `where` say who answered and on which device or channel."""

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
    sources: Sequence[str] = ()
    touches: Sequence[str] = ()
    safe: bool = False
    standing: bool = False
    by_name: str = ""
    where: str = ""


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
    takeovers: Sequence[Takeover] = ()


class JoinedFrame(Struct, frozen=True, tag_field="type", tag="joined"):
    """Messages that waited, by their numbers, are answered by a turn that runs."""

    chat: str
    turn: int
    messages: Sequence[int]


class ProgressFrame(Struct, frozen=True, omit_defaults=True, tag_field="type", tag="progress"):
    """Progress of the agent while a turn runs, or a `note` that says why there is none."""

    chat: str
    turn: int
    text: str
    note: bool = False


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
    """One chat of a list; `at` is its last activity in ms. A pinned chat is shown above the others.
    `preset` is the model that it has chosen ("" = the usual one). `seq` is its newest line and `seen`
    the newest one that the person has seen, on any device. `asks`: it waits for their yes."""

    chat: str
    title: str
    at: int
    running: bool
    pinned: bool = False
    preset: str = ""
    seq: int = 0
    seen: int = 0
    asks: bool = False


class ChatListFrame(Struct, frozen=True, tag_field="type", tag="chats"):
    """Chats of the person, the latest first. `whole`: every chat that is not here is deleted."""

    chats: Sequence[ChatRow]
    whole: bool = False


class FeedFact(Struct, frozen=True, omit_defaults=True):
    """What changed in a chat: fields of its row, each with its new value; None: not that one. `seq`
    and `seen` only grow. `deleted`: it left the list."""

    chat: str
    at: int | None = None
    seq: int | None = None
    seen: int | None = None
    running: bool | None = None
    asks: bool | None = None
    deleted: bool = False


class FeedFrame(Struct, frozen=True, tag_field="type", tag="feed"):
    """What happened in the chats of the person, up to `cursor`: first the `facts`, in their order, then
    `chats`, rows as they are now. With `whole` they are the list, and every chat that is not there is
    deleted."""

    cursor: str
    facts: Sequence[FeedFact] = ()
    chats: Sequence[ChatRow] = ()
    whole: bool = False


class FoundRow(Struct, frozen=True):
    """A chat that was found; `seq` is the newest line with the text (0: only its title has it)."""

    chat: str
    title: str
    at: int
    seq: int
    excerpt: str


class FoundFrame(Struct, frozen=True, tag_field="type", tag="found"):
    """Chats with a text, the latest first. Without `whole` not all chats were searched."""

    text: str
    chats: Sequence[FoundRow]
    whole: bool


class DeletedFrame(Struct, frozen=True, tag_field="type", tag="deleted"):
    """The chat is deleted; for `undo_s` seconds that can be taken back."""

    chat: str
    undo_s: float


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
