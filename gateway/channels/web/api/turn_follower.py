"""What is known of the answer to one message. No I/O: what was heard, and when the log must be
read."""

from __future__ import annotations

import asyncio

import msgspec

from shared.errors import BadInput
from shared.media.reference import read_reference
from shared.messages.live import DeltaEvent, JoinedEvent
from shared.messages.outbound import Approval, OutboundMessage
from shared.store.delivery.fanout import ChatNews
from shared.store.delivery.outbox import NumberedLine


class Aside(msgspec.Struct, frozen=True):
    """Something that was said beside the reply: by the agent, or a question whether a tool may
    run."""

    turn: int
    text: str
    is_question: bool = False


class TurnFollower:
    """Waits for the line that ends message `id` in the log of its chat, from the line after number
    `after` on.

    `number` is the message's own, once it is known. `end` is the line, `lost` is true when none
    will come. `stale` means that lines may have been missed.
    """

    def __init__(self, id: str, after: int, now: float) -> None:
        self.seq = after
        self.number = 0
        self.stale = False
        self.end: OutboundMessage | None = None
        self.lost = False
        self.question: Approval | None = None
        self.last_event_at = now
        self.changed = asyncio.Event()
        self._id = id
        self._joined: dict[int, int] = {}
        self._asides: list[Aside] = []
        self._live = (0, 0)
        self._text = ""
        self._next = 0

    @property
    def turn(self) -> int:
        """The turn that answers the message: its own, unless it joined another."""
        return self._joined.get(self.number, self.number)

    @property
    def text(self) -> str:
        """The running reply, as far as it is known."""
        return self._text if self.number and self._live[0] == self.turn else ""

    @property
    def asides(self) -> list[Aside]:
        """What was said beside the reply, in order."""
        return [one for one in self._asides if self.number and one.turn == self.turn]

    def on_event(self, news: ChatNews, now: float) -> None:
        """Something happened in the chat."""
        self.last_event_at = now
        match news:
            case NumberedLine(seq=seq) if seq == self.seq + 1:
                self.add_line(news)
            case NumberedLine(seq=seq):
                self.stale = self.stale or seq > self.seq
            case DeltaEvent():
                self._add_delta(news)
            case JoinedEvent(turn=turn, messages=messages):
                self._joined.update(dict.fromkeys(messages, turn))
        self.changed.set()

    def add_line(self, numbered: NumberedLine) -> None:
        """A line of the log, in order; one that is known changes nothing."""
        if numbered.seq <= self.seq:
            return
        self.seq = numbered.seq
        if not isinstance(line := numbered.line, OutboundMessage):
            return
        if self._id in line.in_reply_to:
            self.end = line
        elif line.approval is not None:
            self.question = line.approval if line.approval.state == "open" else None
            if self.question is not None:
                self._asides.append(Aside(line.turn, line.content, is_question=True))
        elif line.sent_by_tool:
            self._asides.append(Aside(line.turn, _aside_text(line)))

    def restart(self) -> None:
        """The store has lost lines: its log is read again from its beginning."""
        self.seq = 0
        self._asides.clear()

    def _add_delta(self, delta: DeltaEvent) -> None:
        now = (delta.turn, delta.attempt)
        if now < self._live:
            return
        if now > self._live:
            self._live, self._text, self._next = now, "", 0
        if delta.full:
            self._text = delta.text
        elif delta.seq == self._next:
            self._text += delta.text
        else:
            return  # a gap: a full text comes soon
        self._next = delta.seq + 1


def _aside_text(line: OutboundMessage) -> str:
    """What was said, with the names of files, which cannot be had here, and the buttons."""
    marks = [f"[file: {_file_name(one)}]" for one in line.media] + [f"[{label}]" for label in line.buttons]
    return "\n".join(filter(None, [line.content, " ".join(marks)]))


def _file_name(reference: str) -> str:
    try:
        return read_reference(reference).name
    except BadInput:
        return "file"
