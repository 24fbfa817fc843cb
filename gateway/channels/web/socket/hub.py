"""Brings each chat's lines and live events to the sockets that show it.

Live events come by pub/sub, which may lose them; the log is the truth. A socket gets a line live
only when it is the very next one. A socket that missed something catches up from the log: after a
gap, after the pub/sub connection broke, and after two seconds of silence in a chat that waits for
a reply.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import Final, Protocol

from gateway.channels.web.socket.chat_view import OpenChat, Subscriber, Subscription
from gateway.channels.web.socket.frames import LineRenderer, encode_frame, live_frame
from gateway.process.traces import delivery_span
from shared.clock import SYSTEM_CLOCK, Clock
from shared.errors import RedisAway
from shared.ids import log_id
from shared.log import logger
from shared.messages.live import JoinedEvent, ProgressEvent, TurnEvent
from shared.messages.web import ErrorFrame, ResumedFrame
from shared.store.delivery.fanout import ChatNews, Listener
from shared.store.delivery.outbox import LogPosition, NumberedLine

PAGE: Final = 100
SILENCE_S: Final = 2.0
TICK_S: Final = 0.5
RETRY_S: Final = 1.0
READERS: Final = 6
"""Sockets that catch up at the same time: fewer than the connections of the pool, so that messages
still pass."""

OnGap = Callable[[], Awaitable[None]]

log = logger("hub")


class LiveFeed(Protocol):
    """The source of live events: `shared.store.delivery.fanout.Fanout`."""

    async def follow_chat(self, session: str, listener: Listener) -> None: ...

    async def unfollow_chat(self, session: str) -> None: ...

    async def run(self) -> None: ...


class ChatLog(Protocol):
    """The log of every chat: `shared.store.delivery.outbox.Outbox`."""

    async def position(self, session: str) -> LogPosition: ...

    async def read_after(self, session: str, *, after: int, limit: int) -> list[NumberedLine]: ...


class Hub:
    """All chats that sockets of this process show. A chat without sockets is dropped within a
    second.

    `make_feed` gets the function to call whenever events may have been missed. Without `progress`
    what the agent does during a turn is not shown.
    """

    def __init__(
        self,
        chat_log: ChatLog,
        lines: LineRenderer,
        make_feed: Callable[[OnGap], LiveFeed],
        clock: Clock = SYSTEM_CLOCK,
        *,
        progress: bool = True,
    ) -> None:
        self._log = chat_log
        self._lines = lines
        self._clock = clock
        self._progress = progress
        self._feed = make_feed(self._on_gap)
        self._chats: dict[str, OpenChat] = {}
        self._readers = asyncio.Semaphore(READERS)
        self._retry_at = 0.0

    @property
    def open_chats(self) -> int:
        """Number of chats that are shown."""
        return len(self._chats)

    async def run(self) -> None:
        """Receive events until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._feed.run(), name="fanout")
            group.create_task(self._tick_for_ever(), name="hub tick")

    def follow(self, subscriber: Subscriber, session: str, chat: str, after: int, *, announce: bool) -> None:
        """Show a chat to a socket from the line after number `after` on: first the log, then live.

        With `announce` a `resumed` frame follows the lines of the log. A second call for the same
        chat starts over.
        """
        open_chat = self._chats.get(session)
        if open_chat is None:
            open_chat = self._chats[session] = OpenChat(session, chat, self._clock.monotonic())
            # Subscribed before the log is read: no line can fall between the two.
            open_chat.subscribed = asyncio.ensure_future(
                self._feed.follow_chat(session, partial(self.on_event, session))
            )
        self.leave(subscriber, session)
        subscription = open_chat.subscriptions[subscriber] = Subscription(subscriber, after, announce=announce)
        self._start_catch_up(open_chat, subscription)

    def follows(self, subscriber: Subscriber, session: str) -> bool:
        """Return whether a socket is shown this chat."""
        open_chat = self._chats.get(session)
        return open_chat is not None and subscriber in open_chat.subscriptions

    def leave(self, subscriber: Subscriber, session: str) -> None:
        """Stop showing a chat to a socket."""
        open_chat = self._chats.get(session)
        subscription = open_chat.subscriptions.pop(subscriber, None) if open_chat else None
        if subscription and subscription.task:
            subscription.task.cancel()

    def on_message_accepted(self, session: str, id: str) -> None:
        """Record that a message was accepted for a chat: a reply is due."""
        if open_chat := self._chats.get(session):
            open_chat.add_message(id)

    def on_event(self, session: str, event: ChatNews) -> None:
        """Show an event of a chat. A bug in that ends the sockets of this chat and no others."""
        open_chat = self._chats.get(session)
        if open_chat is None:
            return
        try:
            self._publish(open_chat, event)
        except Exception:
            log.exception("event not shown")
            for subscriber in list(open_chat.subscriptions):
                subscriber.fail()

    def _publish(self, open_chat: OpenChat, event: ChatNews) -> None:
        open_chat.last_event_at = self._clock.monotonic()
        if isinstance(event, NumberedLine):
            with delivery_span(event.line, "web", open_chat.session):
                self._publish_line(open_chat, event)
        elif self._progress or not isinstance(event, ProgressEvent):
            frame = encode_frame(live_frame(open_chat.chat, event))
            for subscriber in list(open_chat.subscriptions):
                if isinstance(event, TurnEvent | JoinedEvent):
                    subscriber.send(frame)
                else:
                    subscriber.send_live(frame)

    def _publish_line(self, open_chat: OpenChat, numbered: NumberedLine) -> None:
        open_chat.add_line(numbered.line)
        subscriptions = list(open_chat.subscriptions.values())
        line = None
        # Rendered once for all sockets, and only if one can use it.
        if any(subscription.sent == numbered.seq - 1 for subscription in subscriptions):
            line = self._lines.render_now(open_chat.chat, numbered)
        frame = None if line is None else encode_frame(line)
        for subscription in subscriptions:
            if frame is not None and subscription.accept_live(numbered.seq):
                subscription.subscriber.send(frame)
            else:
                # It missed a line, or this one is slow to render, or the log lost its tail and
                # counts again: reading the log settles all three.
                subscription.stale = True
                self._start_catch_up(open_chat, subscription)

    async def tick(self) -> None:
        """Drop chats without sockets, retry failed reads, and check chats that are silent for too
        long."""
        now = self._clock.monotonic()
        for session, open_chat in list(self._chats.items()):
            if not open_chat.subscriptions:
                del self._chats[session]
                await self._feed.unfollow_chat(session)
                continue
            if open_chat.reply_due and now - open_chat.last_event_at >= SILENCE_S:
                open_chat.last_event_at = now
                self._recheck(open_chat)
            elif now >= self._retry_at:
                for subscription in open_chat.subscriptions.values():
                    self._start_catch_up(open_chat, subscription)

    async def _tick_for_ever(self) -> None:
        while True:
            await asyncio.sleep(TICK_S)
            await self.tick()

    async def _on_gap(self) -> None:
        self._retry_at = 0.0
        for open_chat in self._chats.values():
            self._recheck(open_chat)

    def _recheck(self, open_chat: OpenChat) -> None:
        for subscription in open_chat.subscriptions.values():
            subscription.stale = True
            self._start_catch_up(open_chat, subscription)

    def _start_catch_up(self, open_chat: OpenChat, subscription: Subscription) -> None:
        if subscription.stale and subscription.task is None:
            subscription.task = asyncio.create_task(self._catch_up(open_chat, subscription))

    async def _catch_up(self, open_chat: OpenChat, subscription: Subscription) -> None:
        assert open_chat.subscribed is not None
        try:
            # Shielded: the other sockets of this chat wait for the same subscription.
            await asyncio.shield(open_chat.subscribed)
            while subscription.stale:
                # Reset first: a line that comes while the log is read sets it again.
                subscription.stale = False
                await self._read_log(open_chat, subscription)
        except RedisAway:
            subscription.stale = True
            if subscription.announce and not subscription.apologised:
                subscription.apologised = True
                message = "Shoal cannot read this chat just now; it appears as soon as the store is back"
                subscription.subscriber.send(
                    encode_frame(ErrorFrame("unavailable", message, chat=open_chat.chat, retry_after=RETRY_S))
                )
        except Exception:
            log.exception("chat not shown", session=log_id(open_chat.session))
            subscription.subscriber.fail()
        finally:
            subscription.task = None

    async def _read_log(self, open_chat: OpenChat, subscription: Subscription) -> None:
        """Send all lines that the log has after the last one that was sent."""
        had, open_before = subscription.sent, open_chat.unanswered()
        async with self._log_access():
            # The position comes first: all lines up to it are then in the log.
            state = await self._log.position(open_chat.session)
        if had > state.last_seq:
            # The store lost lines that this socket has: it starts over.
            subscription.sent, subscription.reset = 0, True
        more = True
        while more:
            async with self._log_access():
                page = await self._log.read_after(open_chat.session, after=subscription.sent, limit=PAGE)
            for numbered in page:
                line = await self._lines.render_soon(open_chat.chat, numbered)
                open_chat.add_line(numbered.line)
                if subscription.accept_logged(numbered.seq):
                    subscription.subscriber.send(encode_frame(line))
                    await subscription.subscriber.drain()
            more = len(page) == PAGE
        subscription.sent = max(subscription.sent, state.last_seq)
        open_chat.set_running(state.running, open_before)
        if (subscription.announce or subscription.reset) and not subscription.stale:
            resumed = ResumedFrame(open_chat.chat, subscription.sent, state.running, subscription.reset)
            subscription.subscriber.send(encode_frame(resumed))
            subscription.announce = subscription.reset = False

    @contextlib.asynccontextmanager
    async def _log_access(self) -> AsyncIterator[None]:
        async with self._readers:
            if self._clock.monotonic() < self._retry_at:
                # Else thousands of sockets would run into the same timeout, one after the other.
                raise RedisAway("Redis was away a moment ago")
            try:
                yield
            except RedisAway:
                self._retry_at = self._clock.monotonic() + RETRY_S
                raise
