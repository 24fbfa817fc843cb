"""The state of a client of one chat, which keeps it from losing or doubling anything over any
number of connections. No I/O.

The rules are those of docs/web.md: a message is kept until it was accepted, and sent again with its
id; lines are resumed after the highest number that was shown, and one whose number comes again with
another mark is a new line; deltas count for the highest attempt only, in order, a full one heals a
gap, and text that was shown stays until there is more of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

import msgspec

from shared.chatlog.live_text import LiveText
from shared.messages import web
from shared.messages.web import AckFrame, ClientFrame, LineFrame, ReplyFrame, SendFrame, StopFrame

ServerFrame = (
    web.WelcomeFrame
    | web.AcceptedFrame
    | LineFrame
    | web.DeltaFrame
    | web.ProgressFrame
    | web.ResumedFrame
    | web.HistoryFrame[msgspec.Raw]
    | web.ErrorFrame
    | web.TurnFrame
    | web.ChatListFrame
)

TRANSIENT: Final = frozenset({"rate_limited", "sender_limit", "busy", "overloaded", "unavailable"})
"""Codes of refusals after which a message is sent again, when the time they name has passed."""

RETRY_S: Final = 2.0

_decode: Callable[[str | bytes], ServerFrame] = msgspec.json.Decoder(ServerFrame).decode


def decode_frame(raw: str | bytes) -> ServerFrame | None:
    """Parse a frame of the gateway; None for one that this release does not know."""
    try:
        return _decode(raw)
    except msgspec.DecodeError:
        return None


class OpeningLines(msgspec.Struct, frozen=True):
    """The newest lines of the chat when it was opened, oldest first."""

    lines: tuple[LineFrame, ...]


class ReplyEvent(msgspec.Struct, frozen=True):
    """A reply; `ids` are the messages from here that it answers."""

    reply: ReplyFrame
    ids: tuple[str, ...]


class GrowingReply(msgspec.Struct, frozen=True):
    """The text of a running answer; it never gets shorter."""

    turn: int
    text: str


class MessageRefused(msgspec.Struct, frozen=True):
    """A message was refused and will not be sent again."""

    reason: str
    id: str


class ChatNote(msgspec.Struct, frozen=True):
    """A remark for the person. With `retry_s`, what was refused is sent again after that time.
    `lost`: there is no connection."""

    text: str
    retry_s: float | None = None
    lost: bool = False


ChatEvent = (
    OpeningLines
    | web.AcceptedFrame
    | web.MessageFrame
    | web.ApprovalFrame
    | ReplyEvent
    | GrowingReply
    | web.ProgressFrame
    | web.ResumedFrame
    | web.TurnFrame
    | web.ChatListFrame
    | MessageRefused
    | ChatNote
)


class ClientState:
    """One chat. Every new connection begins with `opening_frames()`; `on_frame()` turns the frames
    of the gateway into events to show and frames to send."""

    def __init__(self, chat: str) -> None:
        self.unaccepted: dict[str, SendFrame] = {}
        """Messages, by id, that are not known to be durable."""

        self._chat = chat
        self._shown: int | None = None
        self._marks: dict[int, int] = {}
        self._unanswered: dict[str, SendFrame] = {}
        self._turns: dict[int, str] = {}
        self._answered = 0
        self._acknowledged = 0
        self._stopping = False
        self._live = LiveText()
        self._newest_delta = (0, 0, -1)
        self._known_replies: list[ReplyFrame] = []

    def opening_frames(self) -> list[ClientFrame]:
        """Return the frames for a new connection, after the welcome."""
        if self._shown is None:
            return [web.ReadHistoryFrame(self._chat)]
        self._known_replies.clear()
        resume = web.ResumeFrame(self._chat, self._shown, self._marks.get(self._shown, 0))
        return [resume, *self._ack_frames(), *self._message_frames(), *self._stop_frames()]

    def delayed_frames(self) -> list[ClientFrame]:
        """Return the frames to send again after a note with `retry_s`."""
        return self.opening_frames() if self._shown is None else self._message_frames()

    def send_message(self, id: str, text: str, media: Sequence[str] = ()) -> list[ClientFrame]:
        """Add a message of the person's, and return the frames to send now."""
        frame = SendFrame(id, self._chat, text, tuple(media))
        self.unaccepted[id] = self._unanswered[id] = frame
        self._stopping = False
        return [] if self._shown is None else [frame]

    def acknowledge(self, seq: int) -> list[ClientFrame]:
        """The person has seen every line up to `seq`. Return the frames to send now."""
        if seq <= self._acknowledged:
            return []
        self._acknowledged = seq
        return self._ack_frames()

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
            case web.HistoryFrame(lines=raw_lines) if self._shown is None:
                # Each line on its own: one that this release does not know is passed over.
                known = [decode_frame(bytes(raw)) for raw in raw_lines]
                lines = tuple(line for line in known if isinstance(line, LineFrame))
                self._shown = max((line.seq for line in lines), default=0)
                self._marks = {line.seq: line.mark for line in lines}
                yield OpeningLines(lines)
                yield from self.opening_frames()
            case web.AcceptedFrame(id=id, turn=turn):
                self.unaccepted.pop(id, None)
                if turn and id in self._unanswered:  # 0 is a command's: there is no turn to be stopped
                    self._turns[turn] = id
                yield frame
                yield from self._stop_frames()
            case web.MessageFrame() | ReplyFrame() | web.ApprovalFrame():
                yield from self._on_line(frame)
            case web.DeltaFrame(turn=turn, attempt=attempt, seq=seq) if turn > self._answered:
                if (turn, attempt, seq) > self._newest_delta and self._live.add(frame):
                    self._newest_delta = (turn, attempt, seq)
                    yield GrowingReply(turn, self._live.shown)
            case web.ProgressFrame(turn=turn) if turn > self._answered:
                yield frame
            case web.TurnFrame() | web.ChatListFrame():
                yield frame
            case web.ResumedFrame():
                yield from self._on_resumed(frame)
            case web.ErrorFrame():
                yield from self._on_error(frame)

    def _message_frames(self) -> list[ClientFrame]:
        return list(self.unaccepted.values())

    def _ack_frames(self) -> list[ClientFrame]:
        return [AckFrame(self._chat, self._acknowledged)] if self._acknowledged else []

    def _stop_frames(self) -> list[ClientFrame]:
        """Return the stop frame, repeated: a turn can only be stopped while it runs or is next."""
        return [StopFrame(self._chat, min(self._turns))] if self._stopping and self._turns else []

    def _on_line(self, line: LineFrame) -> Iterator[ChatEvent | ClientFrame]:
        # A store that lost the tail of the log uses the numbers of lost lines for new lines.
        other = line.mark and self._marks.get(line.seq, line.mark) != line.mark
        if self._shown is None or (line.seq <= self._shown and not other):
            if isinstance(line, ReplyFrame):
                self._known_replies.append(line)
            return
        if isinstance(line, web.ApprovalFrame) and line.state == "open":
            # The text in front of the question stays above it; what comes next is shown from its
            # beginning, below.
            self._live = LiveText(line.turn)
        self._shown = max(self._shown, line.seq)
        self._marks[line.seq] = line.mark
        if isinstance(line, ReplyFrame):
            yield self._on_reply(line)
            yield from self._stop_frames()
            return
        if isinstance(line, web.MessageFrame):
            self.unaccepted.pop(line.id, None)
        yield line

    def _on_reply(self, reply: ReplyFrame) -> ReplyEvent:
        asked = dict.fromkeys(reply.in_reply_to)
        if reply.kind != "notice":
            # An apology for a message that could not be read names no ids, only its turn.
            asked[self._turns.pop(reply.turn, "")] = None
        ids = tuple(id for id in asked if self._unanswered.pop(id, None) is not None)
        if reply.kind == "notice":  # one that names a message says that it was not read
            return ReplyEvent(reply, ids)
        for id in ids:
            self.unaccepted.pop(id, None)
        # A command may answer in the middle of a turn, which goes on; `/new` answers for everything
        # that waits.
        self._turns = {turn: id for turn, id in self._turns.items() if id in self._unanswered}
        self._answered = max(self._answered, reply.turn)
        self._stopping = self._stopping and bool(self._unanswered)
        return ReplyEvent(reply, ids)

    def _on_resumed(self, frame: web.ResumedFrame) -> Iterator[ChatEvent | ClientFrame]:
        if frame.reset:
            # Unanswered messages may be lost with the tail. Sent again, each is still one turn: the
            # store knows its id, or lost it.
            self._shown = frame.seq
            self._answered = 0
            self._acknowledged = min(self._acknowledged, frame.seq)
            self._marks = {seq: mark for seq, mark in self._marks.items() if seq <= frame.seq}
            self._live = LiveText()
            self._newest_delta = (0, 0, -1)
            self._turns.clear()
            yield ChatNote("the store lost the newest lines of this chat")
            yield from [event for event in map(self._on_reply, self._known_replies) if event.ids]
            self.unaccepted = dict(self._unanswered)
            yield from self._message_frames()
        self._known_replies.clear()
        yield frame

    def _on_error(self, frame: web.ErrorFrame) -> Iterator[ChatEvent]:
        if frame.code == "not_allowed" or (frame.id is not None and frame.id not in self.unaccepted):
            return  # the close code says it; or it was accepted after all
        if frame.code in TRANSIENT:
            yield ChatNote(frame.message, frame.retry_after or RETRY_S)
        elif frame.id is None:
            yield ChatNote(frame.message)
        else:
            del self.unaccepted[frame.id], self._unanswered[frame.id]
            yield MessageRefused(frame.message, frame.id)
