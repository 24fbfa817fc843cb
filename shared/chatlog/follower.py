"""Follows the logs of chats: each reader gets every line once and in order.

Pub/sub may lose live events; the log is the truth. A reader gets a line live only when it is the
very next one. It reads the log at the start, after a gap, after the pub/sub connection broke, and
after a silence in a chat in which something is due."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from functools import partial
from typing import Final, Protocol

from shared.clock import SYSTEM_CLOCK, Clock
from shared.errors import RedisAway, Refused, ReplyError
from shared.ids import log_id
from shared.log import logger
from shared.messages.live import LiveEvent
from shared.store.delivery.fanout import ChatNews, Listener
from shared.store.delivery.outbox import LogPosition, NumberedLine
from shared.tasks import cancel_all

PAGE: Final = 100
SILENCE_S: Final = 2.0
TICK_S: Final = 0.5
RETRY_S: Final = 1.0
BROKEN_AGAIN_S: Final = 10.0  # until a chat that cannot be read is tried again
READS_AT_ONCE: Final = 6  # fewer than the connections of the pool, so that messages still pass
OnGap = Callable[[], Awaitable[None]]

log = logger("follower")


class LiveFeed(Protocol):
    """The source of live events: `shared.store.delivery.fanout.Fanout`."""

    async def follow_chat(self, session: str, listener: Listener) -> None: ...

    async def unfollow_chat(self, session: str) -> None: ...

    async def run(self) -> None: ...


class ChatLog(Protocol):
    """The log of every chat: `shared.store.delivery.outbox.Outbox`."""

    async def position(self, session: str, seq: int = 0) -> LogPosition: ...

    async def read_after(self, session: str, *, after: int, limit: int) -> list[NumberedLine]: ...

    @property
    def settles(self) -> bool: ...

    async def settled(self) -> None: ...


class LogReader(Protocol):
    """A reader of one chat. `seq` is the number of the last line it got and `mark` the mark of that
    line (0: unknown); the log itself may skip numbers, for its oldest lines are trimmed. `stale`:
    lines may have been missed; one that begins stale reads the log first. `reading` is the
    follower's own. `waiting` is true while something is due, so that a silence is suspicious."""

    seq: int
    mark: int
    stale: bool
    reading: asyncio.Task[None] | None

    @property
    def waiting(self) -> bool: ...

    def on_event(self, event: LiveEvent) -> None: ...

    def on_line(self, numbered: NumberedLine) -> bool:
        """Take in the next line. False: not now; it comes again with `read_line`."""

    def on_reading(self) -> None:
        """Prepare: the log is about to be read."""

    async def read_line(self, numbered: NumberedLine) -> None:
        """Take in a line of the log, its number and its mark, unless that is known by then."""

    def on_log_lost(self) -> None:
        """Forget the lines: the store lost some that this reader has, and all are read again."""

    def on_caught_up(self, position: LogPosition) -> None:
        """Take in the position that was true before the lines were read."""

    def on_away(self) -> None:
        """Take in that the log cannot be read now; it is tried again."""

    def fail(self) -> None:
        """Take in that this chat is broken, or its reader; the log is read again after a while."""


class FollowedChat:
    """A chat that is followed, with its readers."""

    def __init__(self, session: str, subscribed: asyncio.Future[None], now: float) -> None:
        self.session = session
        self.readers: dict[LogReader, None] = {}
        self.subscribed = subscribed
        self.last_event_at = now
        self.broken_until = now


class ChatFollower:
    """Follows all chats that have readers in this process. A chat without readers is dropped within
    a second. `make_feed` gets the function to call whenever events may have been missed."""

    def __init__(
        self,
        chat_log: ChatLog,
        make_feed: Callable[[OnGap], LiveFeed],
        clock: Clock = SYSTEM_CLOCK,
        *,
        silence_s: float = SILENCE_S,
    ) -> None:
        self._log = chat_log
        self._feed = make_feed(self.recheck)
        self._clock = clock
        self._silence_s = silence_s
        self._chats: dict[str, FollowedChat] = {}
        self._reads = asyncio.Semaphore(READS_AT_ONCE)
        self._retry_at = 0.0
        self._unsettled: list[tuple[str, ChatNews]] = []
        self._settling: asyncio.Task[None] | None = None
        self._gaps = 0

    @property
    def chats(self) -> int:
        """Number of chats that are followed."""
        return len(self._chats)

    async def run(self) -> None:
        """Receive events until cancelled."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._feed.run(), name="fanout")
                while True:
                    await asyncio.sleep(TICK_S)
                    await self.tick()
        finally:
            await cancel_all(self._under_way())

    def _under_way(self) -> Iterator[asyncio.Future[None]]:
        """Yield the tasks of all chats: subscriptions outlive those who wait for them, being shared."""
        if self._settling is not None:
            yield self._settling
        for chat in self._chats.values():
            yield chat.subscribed
            yield from (reader.reading for reader in chat.readers if reader.reading is not None)

    def follow(self, session: str, reader: LogReader) -> Awaitable[None]:
        """Hand a chat to a reader. Once the result was awaited, no line is missed."""
        chat = self._chats.get(session)
        if chat is None:
            # Subscribed before the log is read: no line can fall between the two.
            subscribing = self._feed.follow_chat(session, partial(self._on_news, session))
            future = asyncio.ensure_future(subscribing)
            now = self._clock.monotonic()
            chat = self._chats[session] = FollowedChat(session, future, now)
        chat.readers[reader] = None
        self._catch_up(chat, reader)
        # Shielded: other readers wait for the same subscription.
        return asyncio.shield(chat.subscribed)

    def unfollow(self, session: str, reader: LogReader) -> None:
        """Hand nothing more to a reader."""
        if (chat := self._chats.get(session)) is not None:
            chat.readers.pop(reader, None)
        if reader.reading is not None:
            reader.reading.cancel()

    async def recheck(self) -> None:
        """Have every reader catch up from the log."""
        self._retry_at = 0.0
        # What came before a break may be of a primary that is none any more.
        self._unsettled.clear()
        self._gaps += 1
        for chat in self._chats.values():
            self._recheck_chat(chat)

    async def tick(self) -> None:
        """Drop chats without readers, retry failed reads, check chats that are silent too long."""
        now = self._clock.monotonic()
        for session, chat in list(self._chats.items()):
            silent = now - chat.last_event_at >= self._silence_s
            if not chat.readers:
                # A subscription under way would be made after it was ended here.
                if chat.subscribed.done():
                    del self._chats[session]
                    await self._feed.unfollow_chat(session)
            elif silent and any(reader.waiting for reader in chat.readers):
                chat.last_event_at = now
                self._recheck_chat(chat)
            elif now >= max(self._retry_at, chat.broken_until):
                for reader in chat.readers:
                    self._catch_up(chat, reader)

    def _on_news(self, session: str, news: ChatNews) -> None:
        if not self._log.settles:
            self._hand_out(session, news)
            return
        # A line is published before the replicas have it. All news wait with it, so that they keep
        # their order; those that come meanwhile wait together for the next answer.
        self._unsettled.append((session, news))
        if self._settling is None:
            self._settling = asyncio.create_task(self._settle())

    async def _settle(self) -> None:
        try:
            while self._unsettled:
                waiting = self._unsettled
                self._unsettled = []
                if any(isinstance(news, NumberedLine) for _, news in waiting):
                    gap = self._gaps
                    try:
                        await self._log.settled()
                    except RedisAway:
                        gap = -1
                    if gap != self._gaps:
                        # Every reader reads the log, where a line counts once the replicas have it.
                        for chat in map(self._chats.get, {session for session, _ in waiting}):
                            if chat is not None:
                                self._recheck_chat(chat)
                        continue
                for session, news in waiting:
                    self._hand_out(session, news)
        finally:
            self._settling = None

    def _hand_out(self, session: str, news: ChatNews) -> None:
        chat = self._chats.get(session)
        if chat is None:
            return
        chat.last_event_at = self._clock.monotonic()
        for reader in list(chat.readers):
            try:
                if not isinstance(news, NumberedLine):
                    reader.on_event(news)
                # A stale reader may hold lines that the store lost: with this one taken live, its
                # mark would be right, and nothing would show it any more.
                elif not reader.stale and news.seq == reader.seq + 1 and reader.on_line(news):
                    reader.seq = news.seq
                    reader.mark = news.mark
                else:
                    # It missed a line, or cannot take this one now, or the log lost its tail and
                    # counts again: reading the log settles all three.
                    reader.stale = True
                self._catch_up(chat, reader)
            except Exception:
                log.exception("event not shown", session=log_id(session))
                self._on_fault(chat, reader)

    def _recheck_chat(self, chat: FollowedChat) -> None:
        for reader in chat.readers:
            reader.stale = True
            self._catch_up(chat, reader)

    def _catch_up(self, chat: FollowedChat, reader: LogReader) -> None:
        if reader.stale and reader.reading is None:
            reader.reading = asyncio.create_task(self._keep_reading(chat, reader))

    async def _keep_reading(self, chat: FollowedChat, reader: LogReader) -> None:
        try:
            await asyncio.shield(chat.subscribed)
            while reader.stale:
                # Reset first: a line that comes while the log is read sets it again.
                reader.stale = False
                await self._read_log(chat.session, reader)
        except (ReplyError, Refused) as exc:
            log.error("chat broken", session=log_id(chat.session), error=str(exc)[:200])
            self._on_fault(chat, reader)
        except RedisAway:
            reader.stale = True
            reader.on_away()
        except Exception:
            log.exception("chat not shown", session=log_id(chat.session))
            self._on_fault(chat, reader)
        finally:
            reader.reading = None

    def _on_fault(self, chat: FollowedChat, reader: LogReader) -> None:
        """Put off a chat that cannot be shown. The other chats of its readers go on."""
        chat.broken_until = self._clock.monotonic() + BROKEN_AGAIN_S
        reader.stale = True
        reader.fail()

    async def _read_log(self, session: str, reader: LogReader) -> None:
        had = reader.seq
        mark = reader.mark
        reader.on_reading()
        async with self._log_access():
            # The position comes first: all lines up to it are then in the log.
            position = await self._log.position(session, had if mark else 0)
        # The store lost the tail of the log. If its numbers were used again since then, another
        # line has this number.
        if had > position.last_seq or position.mark not in (0, mark):
            reader.seq = reader.mark = 0
            reader.on_log_lost()
        more = True
        while more:
            async with self._log_access():
                page = await self._log.read_after(session, after=reader.seq, limit=PAGE)
                if page:
                    await self._log.settled()
            for numbered in page:
                await reader.read_line(numbered)
            more = len(page) == PAGE
        if reader.seq < position.last_seq:
            reader.seq = position.last_seq
            reader.mark = 0
        reader.on_caught_up(position)

    @contextlib.asynccontextmanager
    async def _log_access(self) -> AsyncIterator[None]:
        async with self._reads:
            if self._clock.monotonic() < self._retry_at:
                # Else thousands of readers would run into the same timeout, one after the other.
                raise RedisAway("Redis was away a moment ago")
            try:
                yield
            except RedisAway as exc:
                if not isinstance(exc, ReplyError):  # which may be the fault of this chat alone
                    self._retry_at = self._clock.monotonic() + RETRY_S
                raise
