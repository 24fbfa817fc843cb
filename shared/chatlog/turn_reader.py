"""Reads a chat's log for a caller who waits for the answer to one message. No I/O."""

from __future__ import annotations

import asyncio

from shared.chatlog.live_text import LiveText
from shared.messages.live import DeltaEvent, JoinedEvent, LiveEvent, ProgressEvent, TurnEvent
from shared.messages.outbound import Approval, LogLine, OutboundMessage
from shared.store.delivery.outbox import LogPosition, NumberedLine


class TurnReader:
    """Waits for the line that answers message `id`, from the line after number `after` on. `number`
    is that of the message, once it is accepted; 0 for a command. `end` is the line; `lost` means
    that none will come. `away`: the log cannot be read now. With `turn` it waits for the line that
    answers that turn, which goes on with what a program submitted."""

    def __init__(self, id: str, after: int, turn: int | None = None) -> None:
        self.seq = after
        self.mark = 0
        self.stale = False
        self.reading: asyncio.Task[None] | None = None
        self.number = turn
        self.end: OutboundMessage | None = None
        self.lost = False
        self.away = False
        self.failed = False
        self.question: Approval | None = None
        self.changed = asyncio.Event()
        self._id = id
        self._continues = turn is not None
        self._after = after
        self._whole = after == 0
        self._was_accepted = False
        self._joined: dict[int, int] = {}
        self._lines: list[OutboundMessage] = []
        self._live = LiveText()
        self._action = ProgressEvent(turn=0, text="")

    @property
    def waiting(self) -> bool:
        return self.end is None

    @property
    def turn(self) -> int:
        """The turn that answers the message: its own, unless the message joined another turn."""
        number = self.number or 0
        return self._joined.get(number, number)

    @property
    def text(self) -> str:
        """The running reply, as far as it is known."""
        return self._live.text if self.number and self._live.turn == self.turn else ""

    @property
    def action(self) -> str:
        """A line about the agent's current action, as far as it is known."""
        return self._action.text if self.number and self._action.turn == self.turn else ""

    @property
    def lines(self) -> list[OutboundMessage]:
        """The lines of the turn that do not name the message, such as what the agent sent by its
        message tool, and requests to run a tool."""
        return [line for line in self._lines if self.number and line.turn == self.turn]

    def on_event(self, event: LiveEvent) -> None:
        match event:
            case DeltaEvent():
                if self._live.add(event):
                    # Words of the reply replace the action before them.
                    self._action = ProgressEvent(turn=0, text="")
            case ProgressEvent():
                self._action = event
            case JoinedEvent(turn=turn, messages=messages):
                self._joined.update(dict.fromkeys(messages, turn))
            case TurnEvent(turn=turn, state="stopped" | "failed" | "done" as state):
                # The last line comes before this. `/new` stops a turn, and drops those that wait.
                if self.end is None and (turn >= self.turn or state != "done"):
                    self.stale = True
            case _:
                pass
        self.changed.set()

    def on_line(self, numbered: NumberedLine) -> bool:
        self._add_line(numbered.line)
        self.changed.set()
        return True

    def on_reading(self) -> None:
        self._was_accepted = self.number is not None

    async def read_line(self, numbered: NumberedLine) -> None:
        if numbered.seq > self.seq:
            self.seq = numbered.seq
            self.mark = numbered.mark
            if not self._ended_request_before(numbered):
                self._add_line(numbered.line)

    def on_log_lost(self) -> None:
        self._lines.clear()

    def on_caught_up(self, position: LogPosition) -> None:
        if self._was_accepted and self.end is None:
            over = position.running is None or 0 < (self.number or 0) < position.running
            self.lost = over and self._whole
            if over and not self._whole:
                # The store may have lost the line that this began after, and used numbers below it
                # for the answer: nothing is given up before the whole log was read.
                self._whole = self.stale = True
                self.seq = self.mark = 0
                self._lines.clear()
        self.away = False
        self.changed.set()

    def on_away(self) -> None:
        self.away = True
        self.changed.set()

    def fail(self) -> None:
        self.failed = True
        self.changed.set()

    def _ended_request_before(self, numbered: NumberedLine) -> bool:
        """Tell whether a line asked the program for what it then submitted: where the whole log is
        read again, this comes before what is waited for."""
        line = numbered.line
        calls = isinstance(line, OutboundMessage) and line.calls is not None
        return calls and self._continues and numbered.seq <= self._after

    def _add_line(self, line: LogLine) -> None:
        if not isinstance(line, OutboundMessage):
            return
        if self._id in line.in_reply_to or (self._continues and line.in_reply_to and line.turn == self.number):
            self.end = self.end or line
            return
        if line.approval is not None:
            self.question = line.approval if line.approval.state == "open" else None
        self._lines.append(line)
