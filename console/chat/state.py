"""What a client of one chat knows, so that it loses and doubles nothing over any number of
connections. No I/O.

The rules are those of docs/web.md: a message is kept until it was accepted, and sent again with its
id; lines are resumed after the highest number that was shown; deltas count for the highest attempt
only, in order, and a full one heals a gap.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec

from console.chat.frames import (
    Accepted,
    ClientFrame,
    Delta,
    Failure,
    History,
    Line,
    Message,
    Progress,
    Question,
    ReadHistory,
    Reply,
    Resume,
    Resumed,
    Said,
    ServerFrame,
    Stop,
)

TRANSIENT: Final = frozenset({"rate_limited", "sender_limit", "busy", "overloaded", "unavailable"})
"""Refusals that mean `not now`: what was refused is sent again after the time that came with
them."""

RETRY_S: Final = 2.0


class Past(msgspec.Struct, frozen=True):
    """The newest lines of the chat as they were when it was opened, oldest first."""

    lines: tuple[Line, ...]


class Running(msgspec.Struct, frozen=True):
    """All text so far of the running answer; it replaces what was shown of it."""

    turn: int
    text: str


class Answer(msgspec.Struct, frozen=True):
    """A reply, and the ids of messages said here that it answers."""

    reply: Reply
    ids: tuple[str, ...]


class Asked(msgspec.Struct, frozen=True):
    """A question whether a tool may run, or what somebody answered."""

    question: Question


class Refused(msgspec.Struct, frozen=True):
    """A message was not taken and will not be sent again; without an id, something else was
    refused."""

    message: str
    id: str | None


class Delayed(msgspec.Struct, frozen=True):
    """Something is sent again in `retry_s` seconds."""

    message: str
    retry_s: float


class Reset(msgspec.Struct, frozen=True):
    """The store lost its newest lines."""


Event = Past | Accepted | Said | Answer | Asked | Running | Progress | Resumed | Refused | Delayed | Reset


class ChatState:
    """One chat. `opening()` is said on every new connection; `take()` makes events and frames of
    what is heard."""

    def __init__(self, chat: str) -> None:
        self._chat = chat
        self._shown: int | None = None
        self._unaccepted: dict[str, str] = {}
        self._unanswered: dict[str, str] = {}
        self._turns: dict[int, str] = {}
        self._answered = 0
        self._stopping = False
        self._stream: Delta | None = None
        self._known_replies: list[Reply] = []

    @property
    def unaccepted(self) -> int:
        """How many messages are not known to be durable."""
        return len(self._unaccepted)

    def opening(self) -> list[ClientFrame]:
        """What to say on a new connection, after the welcome."""
        if self._shown is None:
            return [ReadHistory(self._chat)]
        self._known_replies.clear()
        return [Resume(self._chat, self._shown), *self._messages(), *self._stops()]

    def again(self) -> list[ClientFrame]:
        """What to say again when something was delayed."""
        return self.opening() if self._shown is None else self._messages()

    def say(self, id: str, text: str) -> list[ClientFrame]:
        """A person's message; what to send now."""
        self._unaccepted[id] = self._unanswered[id] = text
        self._stopping = False
        return [] if self._shown is None else [Message(id, self._chat, text)]

    def stop(self, turn: int | None = None) -> list[ClientFrame]:
        """End `turn`, or else the answer to what was said here, as soon as there is one; what to
        send now."""
        if turn is not None:
            return [Stop(self._chat, turn)]
        self._stopping = bool(self._unanswered)
        return self._stops()

    def take(self, frame: ServerFrame) -> Iterator[Event | ClientFrame]:
        """What a frame means: events to show, and frames to send."""
        if getattr(frame, "chat", None) not in (self._chat, None):
            return
        match frame:
            case History() if self._shown is None:
                lines = tuple(frame.read())
                self._shown = max((line.seq for line in lines), default=0)
                yield Past(lines)
                yield from self.opening()
            case Accepted(id=id, turn=turn):
                self._unaccepted.pop(id, None)
                if turn and id in self._unanswered:  # 0 is a command's: there is no turn to be stopped
                    self._turns[turn] = id
                yield frame
                yield from self._stops()
            case Said() | Reply() | Question():
                yield from self._line(frame)
            case Delta():
                yield from self._delta(frame)
            case Progress(turn=turn) if turn > self._answered:
                yield frame
            case Resumed():
                yield from self._resumed(frame)
            case Failure():
                yield from self._failure(frame)
            case _:
                pass

    def _messages(self) -> list[ClientFrame]:
        return [Message(id, self._chat, text) for id, text in self._unaccepted.items()]

    def _stops(self) -> list[ClientFrame]:
        """Said again whenever it may work now: a turn is stopped only while it runs or is next."""
        return [Stop(self._chat, min(self._turns))] if self._stopping and self._turns else []

    def _line(self, line: Line) -> Iterator[Event | ClientFrame]:
        if self._shown is None or line.seq <= self._shown:
            if isinstance(line, Reply):
                self._known_replies.append(line)
            return
        self._shown = line.seq
        if isinstance(line, Said):
            self._unaccepted.pop(line.id, None)
            yield line
        elif isinstance(line, Question):
            yield Asked(line)
        else:
            yield self._answer(line)
            yield from self._stops()

    def _answer(self, reply: Reply) -> Answer:
        if reply.kind == "notice":
            # One that names a message says that it was not read.
            return Answer(reply, tuple(id for id in reply.in_reply_to if self._unanswered.pop(id, None) is not None))
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
        return Answer(reply, ids)

    def _delta(self, new: Delta) -> Iterator[Event]:
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
        if text is not None:  # else a gap: what is shown stays until a full one comes
            self._stream = msgspec.structs.replace(new, text=text)
            yield Running(new.turn, text)

    def _resumed(self, frame: Resumed) -> Iterator[Event | ClientFrame]:
        if frame.reset:
            # What has no answer may be lost with the tail. Sent again it is still one turn: its id
            # is known, or gone.
            self._shown, self._answered, self._stream = frame.seq, 0, None
            self._turns.clear()
            yield Reset()
            for answer in [self._answer(reply) for reply in self._known_replies]:
                if answer.ids:
                    yield answer
            self._unaccepted = dict(self._unanswered)
            yield from self._messages()
        self._known_replies.clear()
        yield frame

    def _failure(self, frame: Failure) -> Iterator[Event]:
        if frame.code == "not_allowed" or (frame.id is not None and frame.id not in self._unaccepted):
            return  # the close code says it; or it was accepted after all
        if frame.code in TRANSIENT:
            yield Delayed(frame.message, frame.retry_after or RETRY_S)
            return
        if frame.id is not None:
            del self._unaccepted[frame.id], self._unanswered[frame.id]
        yield Refused(frame.message, frame.id)
