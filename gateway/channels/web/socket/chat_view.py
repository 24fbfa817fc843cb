"""One chat as this process shows it. No I/O: what to send, and when the log must be read."""

from __future__ import annotations

import asyncio
from typing import Protocol

from shared.messages.outbound import LogLine, OutboundMessage, UserLine


class Subscriber(Protocol):
    """A socket, as far as the hub knows it."""

    def send(self, frame: bytes) -> None:
        """Send this, in order."""
        ...

    def send_live(self, frame: bytes) -> None:
        """Send this if there is room; it may be left out."""
        ...

    async def drain(self) -> None:
        """Return when little waits to be sent."""
        ...

    def fail(self) -> None:
        """Something went wrong that should not: end the socket."""
        ...


class Subscription:
    """What one socket was sent of one chat. It gets every line once and in order, whoever brings
    it.

    News is let through only when it is the very next line; anything beyond that means that the log
    must be read (`stale`). The log may skip numbers: lines that were trimmed are gone for
    everybody.
    """

    __slots__ = ("announce", "apologised", "reset", "sent", "stale", "subscriber", "task")

    def __init__(self, subscriber: Subscriber, after: int, *, announce: bool) -> None:
        self.subscriber = subscriber
        self.sent = after
        self.stale = True
        self.announce = announce
        self.apologised = False
        self.reset = False
        self.task: asyncio.Task[None] | None = None

    def accept_live(self, seq: int) -> bool:
        """Whether the line `seq`, heard live, is to be sent now."""
        if seq == self.sent + 1:
            self.sent = seq
            return True
        if seq > self.sent:
            self.stale = True
        return False

    def accept_logged(self, seq: int) -> bool:
        """Whether the line `seq`, read in order from a log that was asked for all after `sent`, is
        to be sent now."""
        if seq <= self.sent:
            return False
        self.sent = seq
        return True


class OpenChat:
    """A chat that some socket of this process shows, and what it waits for."""

    def __init__(self, session: str, chat: str, now: float) -> None:
        self.session = session
        self.chat = chat
        self.subscriptions: dict[Subscriber, Subscription] = {}
        self.last_event_at = now
        self.subscribed: asyncio.Future[None] | None = None
        self._unanswered: set[str] = set()
        self._running = 0

    @property
    def reply_due(self) -> bool:
        """Whether a reply is due, as far as is known here."""
        return bool(self._unanswered) or self._running > 0

    def unanswered(self) -> frozenset[str]:
        """The ids of messages whose reply has not been seen."""
        return frozenset(self._unanswered)

    def add_message(self, id: str) -> None:
        """A message was accepted."""
        self._unanswered.add(id)

    def add_line(self, line: LogLine) -> None:
        """A line was seen, live or in the log."""
        match line:
            case UserLine(id=id):
                self._unanswered.add(id)
            case OutboundMessage(turn=turn, in_reply_to=ids, kind=kind):
                self._unanswered.difference_update(ids)
                if kind not in ("notice", "withdrawn") and turn >= self._running:
                    self._running = 0

    def set_running(self, running: int | None, before: frozenset[str]) -> None:
        """The store said which turn is at the head; `before` are the messages that were open when
        it was asked."""
        if running is None:
            self._unanswered -= before
            self._running = 0
        else:
            self._running = max(self._running, running)
