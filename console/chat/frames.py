"""The frames of the web gateway's socket as a client writes and reads them; docs/web.md says what
each means.

What a newer gateway adds is passed over: unknown fields, and frames of an unknown type.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec


class Hello(msgspec.Struct, frozen=True, tag_field="type", tag="hello"):
    """The first frame."""

    token: str


class Message(msgspec.Struct, frozen=True, tag_field="type", tag="message"):
    """What the person says; sent again with the same id it is the same message."""

    id: str
    chat: str
    text: str


class Stop(msgspec.Struct, frozen=True, tag_field="type", tag="stop"):
    """End this turn, if it is the one that runs or is next."""

    chat: str
    turn: int


class Resume(msgspec.Struct, frozen=True, tag_field="type", tag="resume"):
    """Every line after this number, and then whatever comes."""

    chat: str
    after: int


class ReadHistory(msgspec.Struct, frozen=True, tag_field="type", tag="history"):
    """The newest lines."""

    chat: str


ClientFrame = Hello | Message | Stop | Resume | ReadHistory


class Offered(msgspec.Struct, frozen=True):
    """A command that may be said with a slash before its name."""

    name: str


class Welcome(msgspec.Struct, frozen=True, tag_field="type", tag="welcome"):
    """The token is good."""

    principal: str
    commands: tuple[Offered, ...] = ()


class Accepted(msgspec.Struct, frozen=True, tag_field="type", tag="accepted"):
    """A message is durable; `ahead` others come before it."""

    id: str
    chat: str
    ahead: int
    turn: int


class Said(msgspec.Struct, frozen=True, tag_field="type", tag="message"):
    """A line: what the person said, here or elsewhere."""

    chat: str
    seq: int
    id: str
    text: str


class File(msgspec.Struct, frozen=True):
    """A file of a line; `size` is in bytes."""

    name: str
    size: int


class Reply(msgspec.Struct, frozen=True, tag_field="type", tag="reply"):
    """A line: what Shoal said. `said` marks what the agent said by its message tool, `buttons`
    answers on offer."""

    chat: str
    seq: int
    turn: int
    text: str
    in_reply_to: tuple[str, ...] = ()
    kind: str = "reply"
    media: tuple[File, ...] = ()
    buttons: tuple[str, ...] = ()
    said: bool = False


class Question(msgspec.Struct, frozen=True, tag_field="type", tag="approval"):
    """A line: may a tool run (`state` is open), or what was answered. `/yes` or `/no` with `call`
    answers it, too."""

    chat: str
    seq: int
    turn: int
    call: str
    state: str
    tool: str
    text: str
    arguments: str = ""
    by: str = ""


Line = Said | Reply | Question


class Delta(msgspec.Struct, frozen=True, tag_field="type", tag="delta"):
    """More text of the running answer."""

    chat: str
    turn: int
    attempt: int
    seq: int
    text: str
    full: bool = False


class Progress(msgspec.Struct, frozen=True, tag_field="type", tag="progress"):
    """What the agent is doing."""

    chat: str
    turn: int
    text: str


class Resumed(msgspec.Struct, frozen=True, tag_field="type", tag="resumed"):
    """All lines up to `seq` were sent; `running` is the turn at work or waiting."""

    chat: str
    seq: int
    running: int | None = None
    reset: bool = False


class History(msgspec.Struct, frozen=True, tag_field="type", tag="history"):
    """The newest lines, oldest first."""

    chat: str
    lines: tuple[msgspec.Raw, ...]

    def read(self) -> Iterator[Line]:
        """The lines that this release knows."""
        for raw in self.lines:
            line = read_frame(bytes(raw))
            if isinstance(line, Line):
                yield line


class Failure(msgspec.Struct, frozen=True, tag_field="type", tag="error"):
    """Something could not be done; `retry_after` is in seconds."""

    code: str
    message: str
    id: str | None = None
    chat: str | None = None
    retry_after: float | None = None


ServerFrame = Welcome | Accepted | Line | Delta | Progress | Resumed | History | Failure

_encode = msgspec.json.Encoder().encode
_decode: Callable[[str | bytes], ServerFrame] = msgspec.json.Decoder(ServerFrame).decode


def write_frame(frame: ClientFrame) -> str:
    """The text of a frame."""
    return _encode(frame).decode()


def read_frame(raw: str | bytes) -> ServerFrame | None:
    """What the gateway says; None for what this release does not know."""
    try:
        return _decode(raw)
    except msgspec.DecodeError:
        return None
