"""A chat that a socket of the page shows: its lines and live events as frames."""

from __future__ import annotations

import asyncio
from typing import Final, Protocol

from gateway.channels.web.socket.frames import LineRenderer, encode_frame, live_frame
from gateway.process.traces import delivery_span
from shared.chatlog.follower import RETRY_S
from shared.messages.live import JoinedEvent, LiveEvent, ProgressEvent, TurnEvent
from shared.messages.outbound import LogLine, OutboundMessage, UserLine
from shared.messages.web import ErrorFrame, ResumedFrame, ResumeFrame
from shared.store.delivery.outbox import LogPosition, NumberedLine

BROKEN: Final = "this chat is damaged in the store and cannot be shown; your other chats go on"
AWAY: Final = "Shoal cannot read this chat just now; it appears as soon as the store is back"


class Subscriber(Protocol):
    """A socket as its chats see it. A live frame may be dropped while many wait; `drain` returns
    when few wait."""

    def send(self, frame: bytes) -> None: ...

    def send_live(self, frame: bytes) -> None: ...

    async def drain(self) -> None: ...


class NewsEncoder:
    """Encodes the lines and live events of chats, once for all sockets that get them. Without
    `progress` what the agent does during a turn is not shown."""

    def __init__(self, lines: LineRenderer, *, progress: bool = True) -> None:
        self.lines = lines
        self._progress = progress
        self._last: tuple[LiveEvent | NumberedLine | None, bytes | None] = (None, None)

    def event(self, chat: str, event: LiveEvent) -> bytes | None:
        """Encode a live event; None if it is not shown."""
        if self._last[0] is not event:
            shown = self._progress or not isinstance(event, ProgressEvent) or event.note
            self._last = event, encode_frame(live_frame(chat, event)) if shown else None
        return self._last[1]

    def line(self, session: str, chat: str, numbered: NumberedLine) -> bytes | None:
        """Encode a line; None when rendering would block the event loop for too long."""
        if self._last[0] is not numbered:
            with delivery_span(numbered.line, "web", session):
                frame = self.lines.render_now(session, chat, numbered)
            self._last = numbered, None if frame is None else encode_frame(frame)
        return self._last[1]


class PageReader:
    """Shows a chat to a socket from the line after that of `resume` on: first the log, then live.
    With `announce` a `resumed` frame follows the log. It waits as long as a reply is due."""

    def __init__(
        self, subscriber: Subscriber, encoder: NewsEncoder, session: str, resume: ResumeFrame, *, announce: bool
    ) -> None:
        self.seq = resume.after
        self.mark = resume.mark
        self.stale = True
        self.reading: asyncio.Task[None] | None = None
        self._subscriber = subscriber
        self._encoder = encoder
        self._session = session
        self._chat = resume.chat
        self._announce = announce
        self._apologised = False
        self._reset = False
        self._unanswered: set[str] = set()
        self._before: frozenset[str] = frozenset()
        self._running = 0

    @property
    def waiting(self) -> bool:
        return bool(self._unanswered) or self._running > 0

    def add_message(self, id: str) -> None:
        """Record that a message was accepted: a reply is due."""
        self._unanswered.add(id)

    def on_event(self, event: LiveEvent) -> None:
        if (frame := self._encoder.event(self._chat, event)) is None:
            return
        if isinstance(event, TurnEvent | JoinedEvent):
            self._subscriber.send(frame)
        else:
            self._subscriber.send_live(frame)

    def on_line(self, numbered: NumberedLine) -> bool:
        if (frame := self._encoder.line(self._session, self._chat, numbered)) is None:
            return False
        self._add_line(numbered.line)
        self._subscriber.send(frame)
        return True

    def on_reading(self) -> None:
        self._before = frozenset(self._unanswered)

    async def read_line(self, numbered: NumberedLine) -> None:
        frame = await self._encoder.lines.render_soon(self._session, self._chat, numbered)
        self._add_line(numbered.line)
        if numbered.seq > self.seq:
            self.seq = numbered.seq
            self.mark = numbered.mark
            self._subscriber.send(encode_frame(frame))
            await self._subscriber.drain()

    def on_log_lost(self) -> None:
        self._reset = True

    def on_caught_up(self, position: LogPosition) -> None:
        if position.running is None:
            # Messages accepted since the log was asked stay open.
            self._unanswered -= self._before
            self._running = 0
        else:
            self._running = max(self._running, position.running)
        if (self._announce or self._reset) and not self.stale:
            resumed = ResumedFrame(self._chat, self.seq, position.running, self._reset, self.mark)
            self._subscriber.send(encode_frame(resumed))
            self._announce = self._reset = False
            # What stood on the screen before the page was opened again: the running attempt may
            # have begun again, and then has written less.
            for delta in position.shown:
                self.on_event(delta)

    def on_away(self) -> None:
        if self._announce and not self._apologised:
            self._apologised = True
            error = ErrorFrame("unavailable", AWAY, chat=self._chat, retry_after=RETRY_S)
            self._subscriber.send(encode_frame(error))

    def fail(self) -> None:
        # The socket shows other chats, too: it stays open.
        if not self._apologised:
            self._apologised = True
            self._subscriber.send(encode_frame(ErrorFrame("broken", BROKEN, chat=self._chat)))

    def _add_line(self, line: LogLine) -> None:
        match line:
            case UserLine(id=id):
                self._unanswered.add(id)
            case OutboundMessage(turn=turn, in_reply_to=ids, kind=kind):
                self._unanswered.difference_update(ids)
                if kind not in ("notice", "withdrawn") and turn >= self._running:
                    self._running = 0
