"""The frames of the web socket: what a client may say, and what it hears. JSON objects, told apart
by `type`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta, Struct

from gateway.channels.web.http.media import MediaFrame
from gateway.channels.web.socket.approval_frames import ApprovalFrame, Approve
from gateway.commands.command import CommandRow
from shared.errors import BadInput
from shared.messages.live import TurnState
from shared.messages.outbound import OutboundKind

FRAME_LIMIT_BYTES: Final = 2 * 1024 * 1024
"""A larger frame ends the socket. Far above the limit of a message, so that one too long gets an
answer instead."""

Seq = Annotated[int, Meta(ge=0, le=2**53 - 1)]

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


class Hello(Struct, frozen=True, tag_field="type", tag="hello"):
    """The first frame: who is it?"""

    token: str


class Say(Struct, frozen=True, tag_field="type", tag="message"):
    """A person's message. `id` is a UUID of the client's: sent again, it is the same message.
    `media` names files as their upload answered (`ref`). `traceparent` is the client's own trace
    (W3C), for programs that keep one."""

    id: str
    chat: str
    text: str
    media: tuple[str, ...] = ()
    traceparent: str | None = None


class Stop(Struct, frozen=True, tag_field="type", tag="stop"):
    """End this turn; without a number the one that runs or is next."""

    chat: str
    turn: Seq | None = None


class Resume(Struct, frozen=True, tag_field="type", tag="resume"):
    """Show this chat from the line after number `after` on, and whatever comes."""

    chat: str
    after: Seq = 0


class ListChats(Struct, frozen=True, tag_field="type", tag="chats"):
    """Which chats do I have?"""


class ReadHistory(Struct, frozen=True, tag_field="type", tag="history"):
    """The newest lines, or those before number `before`."""

    chat: str
    before: Seq | None = None


class Ack(Struct, frozen=True, tag_field="type", tag="ack"):
    """I have seen everything up to `seq`."""

    chat: str
    seq: Seq


class Withdraw(Struct, frozen=True, tag_field="type", tag="withdraw"):
    """Take back a message that waits; without a chat, in whichever shown one it is."""

    id: str
    chat: str | None = None


ClientFrame = Hello | Say | Stop | Resume | ListChats | ReadHistory | Ack | Withdraw | Approve


class Welcome(Struct, frozen=True, tag_field="type", tag="welcome"):
    """The token is good. `commands` are those that may be written instead of a message, each with a
    slash before it; a message may have `files` files of `file_bytes` each."""

    principal: str
    version: str
    commands: Sequence[CommandRow] = ()
    files: int = 0
    file_bytes: int = 0


class Taken(Struct, frozen=True, tag_field="type", tag="accepted"):
    """The message is durable. `ahead` turns come before it; `turn` is its number, 0 for a command
    and for what is not read."""

    id: str
    chat: str
    ahead: int
    turn: int


class Said(Struct, frozen=True, omit_defaults=True, tag_field="type", tag="message"):
    """A line of the log: what the person said, on this device or another."""

    chat: str
    seq: int
    id: str
    text: str
    at: int
    media: Sequence[MediaFrame] = ()


About = Literal["", "schedule", "subagent"]


class Reply(Struct, frozen=True, omit_defaults=True, tag_field="type", tag="reply"):
    """A line of the log: what Shoal said. `html` is `text` rendered and made safe. `said` marks a
    notice that is the agent's own word; the reply that ends such a turn has no text and is not
    shown. `buttons` are answers on offer, `about` says what the turn began with when that was
    nobody's message."""

    chat: str
    seq: int
    turn: int
    text: str
    html: str
    in_reply_to: Sequence[str]
    kind: OutboundKind
    at: int
    media: Sequence[MediaFrame] = ()
    buttons: Sequence[str] = ()
    said: bool = False
    about: About = ""


LineFrame = Said | Reply | ApprovalFrame


class TurnFrame(Struct, frozen=True, tag_field="type", tag="turn"):
    """A turn began or ended."""

    chat: str
    turn: int
    state: TurnState
    attempt: int


class Delta(Struct, frozen=True, omit_defaults=True, tag_field="type", tag="delta"):
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


class Progress(Struct, frozen=True, tag_field="type", tag="progress"):
    """What the agent is doing."""

    chat: str
    turn: int
    text: str


class Resumed(Struct, frozen=True, omit_defaults=True, tag_field="type", tag="resumed"):
    """All lines up to `seq` have been sent. `running` is the turn that runs or is next.

    `reset` means that the client knew lines that the log does not have: the store lost its tail,
    and what was sent before this frame is all there is.
    """

    chat: str
    seq: int
    running: int | None
    reset: bool = False


class ChatRow(Struct, frozen=True):
    """One chat of a list; `at` is its last activity in ms."""

    chat: str
    title: str
    at: int
    running: bool


class ChatList(Struct, frozen=True, tag_field="type", tag="chats"):
    """The person's chats, the latest first."""

    chats: Sequence[ChatRow]


class History(Struct, frozen=True, tag_field="type", tag="history"):
    """A piece of the log, oldest first. `more` says whether there are older lines."""

    chat: str
    lines: Sequence[LineFrame]
    more: bool


class Failure(Struct, frozen=True, omit_defaults=True, tag_field="type", tag="error"):
    """Something could not be done: `code` for programs, `message` for the person, `retry_after` in
    seconds."""

    code: str
    message: str
    id: str | None = None
    chat: str | None = None
    retry_after: float | None = None


ServerFrame = (
    Welcome | Taken | LineFrame | TurnFrame | Delta | Progress | JoinedFrame | Resumed | ChatList | History | Failure
)  # fmt: skip

ErrorCode = Literal[
    "bad_frame", "bad_chat", "bad_id", "bad_media", "empty", "too_big", "not_allowed", "not_available",
    "too_late", "not_found", "rate_limited", "busy", "sender_limit", "bot_loop", "inbox_full", "overloaded",
    "unavailable", "approval_unknown", "approval_used", "approval_late", "approval_over", "approval_not_allowed",
    "approval_changed", "approval_held",
]  # fmt: skip
"""Every code a client may meet."""


class _About(Struct):
    id: Any = None
    chat: Any = None


_decode = msgspec.json.Decoder(ClientFrame).decode
_decode_about = msgspec.json.Decoder(_About).decode
_encode = msgspec.json.Encoder().encode


def read_frame(raw: str) -> ClientFrame:
    """What a client said. Raises BadInput: `bad_frame`, `bad_chat`, `bad_id` or `empty`."""
    try:
        frame: ClientFrame = _decode(raw)
    except msgspec.ValidationError as exc:
        raise BadInput("bad_frame", f"this is no frame that we know: {exc}") from None
    except msgspec.DecodeError:
        raise BadInput("bad_frame", "a frame must be one JSON object") from None
    except RecursionError:
        raise BadInput("bad_frame", "the frame is nested too deeply") from None
    match frame:
        case Say(id=id) | Withdraw(id=id) if not _NAME.fullmatch(id):
            raise BadInput("bad_id", "an id has 1 to 64 letters, digits, dashes and underscores, such as a UUID")
    chat = getattr(frame, "chat", "-")
    if not _NAME.fullmatch("-" if chat is None else chat):
        raise BadInput("bad_chat", "a chat has 1 to 64 letters, digits, dashes and underscores")
    if isinstance(frame, Say) and not frame.text.strip() and not frame.media:
        raise BadInput("empty", "the message has no text")
    return frame


def about(raw: str) -> tuple[str | None, str | None]:
    """The message id and the chat that a refused frame speaks of, as far as they can be made
    out."""
    try:
        found = _decode_about(raw)
    except (msgspec.DecodeError, RecursionError):
        return None, None
    return _name(found.id), _name(found.chat)


def write_frame(frame: ServerFrame) -> bytes:
    """The text of a frame, UTF-8: made once for all sockets that are sent it."""
    return _encode(frame)


def _name(value: object) -> str | None:
    return value if isinstance(value, str) and _NAME.fullmatch(value) else None
