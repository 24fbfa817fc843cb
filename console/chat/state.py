"""The state of a client of one chat, which keeps it from losing or doubling anything over any
number of connections. No I/O.

The rules are those of docs/web.md: a message is kept until it was accepted, and sent again with its
id; lines are resumed after the highest number that was shown; deltas count for the highest attempt
only, in order, and a full one heals a gap.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

import msgspec

from shared.messages.web import (
    AcceptedFrame,
    ApprovalFrame,
    ClientFrame,
    DeltaFrame,
    ErrorFrame,
    HistoryFrame,
    LineFrame,
    MessageFrame,
    ProgressFrame,
    ReadHistoryFrame,
    ReplyFrame,
    ResumedFrame,
    ResumeFrame,
    SendFrame,
    StopFrame,
    WelcomeFrame,
)

ServerFrame = (
    WelcomeFrame
    | AcceptedFrame
    | LineFrame
    | DeltaFrame
    | ProgressFrame
    | ResumedFrame
    | HistoryFrame[msgspec.Raw]
    | ErrorFrame
)

TRANSIENT: Final = frozenset({"rate_limited", "sender_limit", "busy", "overloaded", "unavailable"})
"""Codes of refusals after which a message is sent again, when the time they name has passed."""

RETRY_S: Final = 2.0

_encode = msgspec.json.Encoder().encode
_decode: Callable[[str | bytes], ServerFrame] = msgspec.json.Decoder(ServerFrame).decode


def encode_frame(frame: ClientFrame) -> str:
    """Write a frame of a client."""
    return _encode(frame).decode()


def decode_frame(raw: str | bytes) -> ServerFrame | None:
    """Parse a frame of the gateway; None for one that this release does not know."""
    try:
        return _decode(raw)
    except msgspec.DecodeError:
        return None


class OpeningLines(msgspec.Struct, frozen=True):
    """The newest lines of the chat when it was opened, oldest first."""

    lines: tuple[LineFrame, ...]


class GrowingReply(msgspec.Struct, frozen=True):
    """All text so far of the running answer; it replaces earlier text."""

    turn: int
    text: str


class ReplyEvent(msgspec.Struct, frozen=True):
    """A reply, and the ids of messages sent from here that it answers."""

    reply: ReplyFrame
    ids: tuple[str, ...]


class ApprovalEvent(msgspec.Struct, frozen=True):
    """A request to run a tool, or its outcome."""

    approval: ApprovalFrame


class MessageRefused(msgspec.Struct, frozen=True):
    """A message was refused and will not be sent again; without an id, another frame was
    refused."""

    message: str
    id: str | None


class RetryLater(msgspec.Struct, frozen=True):
    """A message is sent again in `retry_s` seconds."""

    message: str
    retry_s: float


class LinesLost(msgspec.Struct, frozen=True):
    """The store lost its newest lines."""


ChatEvent = (
    OpeningLines
    | AcceptedFrame
    | MessageFrame
    | ReplyEvent
    | ApprovalEvent
    | GrowingReply
    | ProgressFrame
    | ResumedFrame
    | MessageRefused
    | RetryLater
    | LinesLost
)


class ClientState:
    """One chat. Every new connection begins with `opening_frames()`; `on_frame()` turns the frames
    of the gateway into events to show and frames to send."""

    def __init__(self, chat: str) -> None:
        self._chat = chat
        self._shown: int | None = None
        self._unaccepted: dict[str, str] = {}
        self._unanswered: dict[str, str] = {}
        self._turns: dict[int, str] = {}
        self._answered = 0
        self._stopping = False
        self._stream: DeltaFrame | None = None
        self._known_replies: list[ReplyFrame] = []

    @property
    def unaccepted(self) -> int:
        """Number of messages that are not known to be durable."""
        return len(self._unaccepted)

    def opening_frames(self) -> list[ClientFrame]:
        """Return the frames for a new connection, after the welcome."""
        if self._shown is None:
            return [ReadHistoryFrame(self._chat)]
        self._known_replies.clear()
        return [ResumeFrame(self._chat, self._shown), *self._message_frames(), *self._stop_frames()]

    def delayed_frames(self) -> list[ClientFrame]:
        """Return the frames to send again after a RetryLater."""
        return self.opening_frames() if self._shown is None else self._message_frames()

    def send_message(self, id: str, text: str) -> list[ClientFrame]:
        """Add a message of the person's, and return the frames to send now."""
        self._unaccepted[id] = self._unanswered[id] = text
        self._stopping = False
        return [] if self._shown is None else [SendFrame(id, self._chat, text)]

    def stop(self, turn: int | None = None) -> list[ClientFrame]:
        """Stop `turn`, or else the turns that answer messages from here, also a turn that has not
        begun. Return the frames to send now."""
        if turn is not None:
            return [StopFrame(self._chat, turn)]
        self._stopping = bool(self._unanswered)
        return self._stop_frames()

    def on_frame(self, frame: ServerFrame) -> Iterator[ChatEvent | ClientFrame]:
        """Yield the events of a frame, and the frames to send."""
        if getattr(frame, "chat", None) not in (self._chat, None):
            return
        match frame:
            case HistoryFrame(lines=raw_lines) if self._shown is None:
                # Each line on its own: one that this release does not know is passed over.
                known = [decode_frame(bytes(raw)) for raw in raw_lines]
                lines = tuple(line for line in known if isinstance(line, LineFrame))
                self._shown = max((line.seq for line in lines), default=0)
                yield OpeningLines(lines)
                yield from self.opening_frames()
            case AcceptedFrame(id=id, turn=turn):
                self._unaccepted.pop(id, None)
                if turn and id in self._unanswered:  # 0 is a command's: there is no turn to be stopped
                    self._turns[turn] = id
                yield frame
                yield from self._stop_frames()
            case MessageFrame() | ReplyFrame() | ApprovalFrame():
                yield from self._on_line(frame)
            case DeltaFrame():
                yield from self._on_delta(frame)
            case ProgressFrame(turn=turn) if turn > self._answered:
                yield frame
            case ResumedFrame():
                yield from self._on_resumed(frame)
            case ErrorFrame():
                yield from self._on_error(frame)
            case _:
                pass

    def _message_frames(self) -> list[ClientFrame]:
        return [SendFrame(id, self._chat, text) for id, text in self._unaccepted.items()]

    def _stop_frames(self) -> list[ClientFrame]:
        """Return the stop frame, which is repeated: a turn can only be stopped while it runs or is
        next."""
        return [StopFrame(self._chat, min(self._turns))] if self._stopping and self._turns else []

    def _on_line(self, line: LineFrame) -> Iterator[ChatEvent | ClientFrame]:
        if self._shown is None or line.seq <= self._shown:
            if isinstance(line, ReplyFrame):
                self._known_replies.append(line)
            return
        self._shown = line.seq
        if isinstance(line, MessageFrame):
            self._unaccepted.pop(line.id, None)
            yield line
        elif isinstance(line, ApprovalFrame):
            yield ApprovalEvent(line)
        else:
            yield self._on_reply(line)
            yield from self._stop_frames()

    def _on_reply(self, reply: ReplyFrame) -> ReplyEvent:
        if reply.kind == "notice":
            # A notice that names a message says that it was not read.
            return ReplyEvent(
                reply, tuple(id for id in reply.in_reply_to if self._unanswered.pop(id, None) is not None)
            )
        # An apology for a message that could not be read names no ids, only its turn.
        asked = dict.fromkeys((*reply.in_reply_to, self._turns.pop(reply.turn, "")))
        ids = tuple(id for id in asked if self._unanswered.pop(id, None) is not None)
        for id in ids:
            self._unaccepted.pop(id, None)
        # A command may answer in the middle of a turn, which goes on; `/new` answers for everything
        # that waits.
        self._turns = {turn: id for turn, id in self._turns.items() if id in self._unanswered}
        self._answered = max(self._answered, reply.turn)
        if self._stream is not None and self._stream.turn <= self._answered:
            self._stream = None
        self._stopping = self._stopping and bool(self._unanswered)
        return ReplyEvent(reply, ids)

    def _on_delta(self, new: DeltaFrame) -> Iterator[ChatEvent]:
        known = self._stream
        if new.turn <= self._answered:
            return
        if known is None or (new.turn, new.attempt) > (known.turn, known.attempt):
            text = new.text if new.full else None
        elif (new.turn, new.attempt) < (known.turn, known.attempt) or new.seq <= known.seq:
            return
        elif new.full:
            text = new.text
        else:
            text = known.text + new.text if new.seq == known.seq + 1 else None
        if text is not None:  # else a gap: the old text stays until a full delta comes
            self._stream = msgspec.structs.replace(new, text=text)
            yield GrowingReply(new.turn, text)

    def _on_resumed(self, frame: ResumedFrame) -> Iterator[ChatEvent | ClientFrame]:
        if frame.reset:
            # Unanswered messages may be lost with the tail. Sent again, each is still one turn: the
            # store knows its id, or lost it.
            self._shown, self._answered, self._stream = frame.seq, 0, None
            self._turns.clear()
            yield LinesLost()
            for answer in [self._on_reply(reply) for reply in self._known_replies]:
                if answer.ids:
                    yield answer
            self._unaccepted = dict(self._unanswered)
            yield from self._message_frames()
        self._known_replies.clear()
        yield frame

    def _on_error(self, frame: ErrorFrame) -> Iterator[ChatEvent]:
        if frame.code == "not_allowed" or (frame.id is not None and frame.id not in self._unaccepted):
            return  # the close code says it; or it was accepted after all
        if frame.code in TRANSIENT:
            yield RetryLater(frame.message, frame.retry_after or RETRY_S)
            return
        if frame.id is not None:
            del self._unaccepted[frame.id], self._unanswered[frame.id]
        yield MessageRefused(frame.message, frame.id)
