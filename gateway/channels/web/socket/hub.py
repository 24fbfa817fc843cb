"""Brings each chat's lines and live events to the sockets that show it.

Live news comes by pub/sub, which may lose it; the log is the truth. So a socket gets a line live
when it is the very next one, and whoever missed something is brought up from the log: after a gap,
after the pub/sub connection broke, and after two seconds of silence in a chat that waits for a
reply.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import Final, Protocol

from gateway.channels.web.socket.chat_view import OpenChat, Subscriber, Subscription
from gateway.channels.web.socket.lines import LineRenderer, live_frame
from gateway.channels.web.socket.protocol import encode_frame
from gateway.process.traces import delivering
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
"""Sockets that are brought up from the log at once: fewer than the connections of the pool, so that
messages pass."""

OnGap = Callable[[], Awaitable[None]]

log = logger("hub")


class LiveFeed(Protocol):
    """Where live news comes from: `shared.store.delivery.fanout.Fanout`."""

    async def follow_chat(self, session: str, listener: Listener) -> None: ...

    async def unfollow_chat(self, session: str) -> None: ...

    async def run(self) -> None: ...


class ChatLog(Protocol):
    """Where the truth is: `shared.store.delivery.outbox.Outbox`."""

    async def position(self, session: str) -> LogPosition: ...

    async def read_after(self, session: str, *, after: int, limit: int) -> list[NumberedLine]: ...


class Hub:
    """All chats that this process shows. What nobody shows any more is forgotten within a second.

    `make_news` gets what is to be called whenever news may have been missed. Without `progress`
    nobody is shown what the agent does during a turn.
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
        """How many chats are shown."""
        return len(self._chats)

    async def run(self) -> None:
        """Listen until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._feed.run(), name="fanout")
            group.create_task(self._tick_for_ever(), name="hub tick")

    def follow(self, viewer: Subscriber, session: str, chat: str, after: int, *, announce: bool) -> None:
        """Show a chat to a socket from the line after number `after` on: first what the log has,
        then what comes.

        With `announce` a `resumed` frame follows the lines of the log. The same chat again starts
        over.
        """
        room = self._chats.get(session)
        if room is None:
            room = self._chats[session] = OpenChat(session, chat, self._clock.monotonic())
            # First the subscription, then the log: nothing can fall between them.
            room.subscribed = asyncio.ensure_future(self._feed.follow_chat(session, partial(self.on_event, session)))
        self.leave(viewer, session)
        view = room.subscriptions[viewer] = Subscription(viewer, after, announce=announce)
        self._start_catch_up(room, view)

    def follows(self, viewer: Subscriber, session: str) -> bool:
        """Whether a socket is shown this chat."""
        room = self._chats.get(session)
        return room is not None and viewer in room.subscriptions

    def leave(self, viewer: Subscriber, session: str) -> None:
        """Show this chat no more to a socket."""
        room = self._chats.get(session)
        view = room.subscriptions.pop(viewer, None) if room else None
        if view and view.task:
            view.task.cancel()

    def on_message_accepted(self, session: str, id: str) -> None:
        """A message was accepted for a chat: a reply is due."""
        if room := self._chats.get(session):
            room.add_message(id)

    def on_event(self, session: str, event: ChatNews) -> None:
        """Something happened in a chat. A fault in showing it costs the sockets of that chat, and
        nobody else."""
        open_chat = self._chats.get(session)
        if open_chat is None:
            return
        try:
            self._publish(open_chat, event)
        except Exception:
            log.exception("news not shown")
            for subscriber in list(open_chat.subscriptions):
                subscriber.fail()

    def _publish(self, room: OpenChat, news: ChatNews) -> None:
        room.last_event_at = self._clock.monotonic()
        if isinstance(news, NumberedLine):
            with delivering(news.line, "web", room.session):
                self._publish_line(room, news)
        elif self._progress or not isinstance(news, ProgressEvent):
            frame = encode_frame(live_frame(room.chat, news))
            for viewer in list(room.subscriptions):
                if isinstance(news, TurnEvent | JoinedEvent):
                    viewer.send(frame)
                else:
                    viewer.send_live(frame)

    def _publish_line(self, room: OpenChat, numbered: NumberedLine) -> None:
        room.add_line(numbered.line)
        views = list(room.subscriptions.values())
        line = None
        if any(view.sent == numbered.seq - 1 for view in views):
            line = self._lines.render_now(room.chat, numbered)
        frame = None if line is None else encode_frame(line)
        for view in views:
            if frame is not None and view.accept_live(numbered.seq):
                view.subscriber.send(frame)
            else:
                # It missed something, or the line takes long to render, or the log began anew: a
                # reader finds out.
                view.stale = True
                self._start_catch_up(room, view)

    async def tick(self) -> None:
        """One round of looking after the chats: forget, retry, and doubt the silence."""
        now = self._clock.monotonic()
        for session, room in list(self._chats.items()):
            if not room.subscriptions:
                del self._chats[session]
                await self._feed.unfollow_chat(session)
                continue
            if room.reply_due and now - room.last_event_at >= SILENCE_S:
                room.last_event_at = now
                self._recheck(room)
            elif now >= self._retry_at:
                for view in room.subscriptions.values():
                    self._start_catch_up(room, view)

    async def _tick_for_ever(self) -> None:
        while True:
            await asyncio.sleep(TICK_S)
            await self.tick()

    async def _on_gap(self) -> None:
        self._retry_at = 0.0
        for room in self._chats.values():
            self._recheck(room)

    def _recheck(self, room: OpenChat) -> None:
        for view in room.subscriptions.values():
            view.stale = True
            self._start_catch_up(room, view)

    def _start_catch_up(self, room: OpenChat, view: Subscription) -> None:
        if view.stale and view.task is None:
            view.task = asyncio.create_task(self._catch_up(room, view))

    async def _catch_up(self, room: OpenChat, view: Subscription) -> None:
        assert room.subscribed is not None
        try:
            await asyncio.shield(room.subscribed)
            while view.stale:
                view.stale = False
                await self._read_log(room, view)
        except RedisAway:
            view.stale = True
            if view.announce and not view.apologised:
                view.apologised = True
                message = "Shoal cannot read this chat just now; it appears as soon as the store is back"
                view.subscriber.send(
                    encode_frame(ErrorFrame("unavailable", message, chat=room.chat, retry_after=RETRY_S))
                )
        except Exception:
            log.exception("chat not shown", session=log_id(room.session))
            view.subscriber.fail()
        finally:
            view.task = None

    async def _read_log(self, room: OpenChat, view: Subscription) -> None:
        """Send everything that the log has. Where it stands is asked first: all up to there is then
        in the log."""
        had, open_before = view.sent, room.unanswered()
        async with self._log_access():
            state = await self._log.position(room.session)
        if had > state.last_seq:
            view.sent, view.reset = 0, True
        more = True
        while more:
            async with self._log_access():
                page = await self._log.read_after(room.session, after=view.sent, limit=PAGE)
            for numbered in page:
                line = await self._lines.render_soon(room.chat, numbered)
                room.add_line(numbered.line)
                if view.accept_logged(numbered.seq):
                    view.subscriber.send(encode_frame(line))
                    await view.subscriber.drain()
            more = len(page) == PAGE
        view.sent = max(view.sent, state.last_seq)
        room.set_running(state.running, open_before)
        if (view.announce or view.reset) and not view.stale:
            view.subscriber.send(encode_frame(ResumedFrame(room.chat, view.sent, state.running, view.reset)))
            view.announce = view.reset = False

    @contextlib.asynccontextmanager
    async def _log_access(self) -> AsyncIterator[None]:
        async with self._readers:
            if self._clock.monotonic() < self._retry_at:
                raise RedisAway("Redis was away a moment ago")  # not thousands of sockets one after the other
            try:
                yield
            except RedisAway:
                self._retry_at = self._clock.monotonic() + RETRY_S
                raise
