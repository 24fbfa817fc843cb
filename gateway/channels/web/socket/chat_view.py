"""A chat that sockets of this process show, without I/O: what to send, when to read the log."""

from __future__ import annotations

import asyncio
from typing import Protocol

from shared.messages.outbound import LogLine, OutboundMessage, UserLine


class Subscriber(Protocol):
    """A socket as the hub sees it."""

    def send(self, frame: bytes) -> None:
        """Send a frame, in order."""
        ...

    def send_live(self, frame: bytes) -> None:
        """Send a frame, or drop it while many wait."""
        ...

    async def drain(self) -> None:
        """Return when few frames wait to be sent."""
        ...

    def fail(self) -> None:
        """End the socket after an internal error."""
        ...


class Subscription:
    """A chat on one socket, and how far it was sent. Every line is sent once and in order, whether
    it came live or from the log.

    A live line is accepted only when it is the very next one; a later one means that the log must
    be read (`stale`). The log itself may skip numbers: its oldest lines are trimmed.
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
        """Return whether line `seq`, which came live, is to be sent now."""
        if seq == self.sent + 1:
            self.sent = seq
            return True
        if seq > self.sent:
            self.stale = True
        return False

    def accept_logged(self, seq: int) -> bool:
        """Return whether line `seq`, read from the log in order, is to be sent now."""
        if seq <= self.sent:
            return False
        self.sent = seq
        return True


class OpenChat:
    """A chat with its subscriptions, and the messages whose replies are due."""

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
        """True if a reply is due, as far as this process knows."""
        return bool(self._unanswered) or self._running > 0

    def unanswered(self) -> frozenset[str]:
        """Return the ids of messages whose reply has not been seen."""
        return frozenset(self._unanswered)

    def add_message(self, id: str) -> None:
        """Record an accepted message."""
        self._unanswered.add(id)

    def add_line(self, line: LogLine) -> None:
        """Take in a line, live or from the log."""
        match line:
            case UserLine(id=id):
                self._unanswered.add(id)
            case OutboundMessage(turn=turn, in_reply_to=ids, kind=kind):
                self._unanswered.difference_update(ids)
                if kind not in ("notice", "withdrawn") and turn >= self._running:
                    self._running = 0

    def set_running(self, running: int | None, before: frozenset[str]) -> None:
        """Record which turn runs, as the store knows it; `before` are the messages that were open
        when it was asked."""
        if running is None:
            # Messages accepted since the question was asked stay open.
            self._unanswered -= before
            self._running = 0
        else:
            self._running = max(self._running, running)
