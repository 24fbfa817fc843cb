"""Feeds of persons: every socket of a person gets what happens in all of that person's chats."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from functools import partial
from typing import Final, Protocol

from shared.clock import SYSTEM_CLOCK, Clock
from shared.errors import RedisAway, Refused, ReplyError
from shared.log import logger
from shared.store import keys
from shared.store.client.redis_client import RedisClient
from shared.store.delivery.fanout import Fanout
from shared.store.delivery.feed import KEEP_MS, Fact, Feed, Missed, parse_news
from shared.tasks import cancel_all

TICK_S: Final = 1.0
READS_AT_ONCE: Final = 4
BROKEN_AGAIN_S: Final = 10.0  # until a feed that cannot be read is tried again
RENEW_S: Final = KEEP_MS / 1000 / 12  # far more often than a feed would expire

log = logger("feed")


class FeedReader(Protocol):
    """A socket that follows its person's feed. `cursor` is the id of the newest fact that it has.
    `stale`: facts may have been missed. `reading` is the follower's own."""

    cursor: str
    stale: bool
    reading: asyncio.Task[None] | None

    def on_fact(self, fact: Fact) -> bool:
        """Take in the next fact. False: not now; it comes again with `on_missed`."""

    async def on_missed(self, missed: Missed) -> None:
        """Take in facts that were missed, or that the list is needed. Raises RedisAway."""

    def on_away(self) -> None:
        """Take in that the feed cannot be read now; it is tried again."""

    async def on_broken(self) -> None:
        """Take in that there will be no feed for a while. Raises RedisAway."""


class FollowedFeed:
    """The feed of one person, with the sockets that follow it here."""

    def __init__(self, subscribed: asyncio.Future[None], now: float) -> None:
        self.readers: dict[FeedReader, None] = {}
        self.subscribed = subscribed
        self.renewed_at = self.broken_until = now


class FeedFollower:
    """Follows the feeds of all persons who have a socket in this process. Pub/sub may lose facts; the
    stream has them, and a reader catches up from it at the start and after a gap."""

    def __init__(self, client: RedisClient, clock: Clock = SYSTEM_CLOCK) -> None:
        self._feed = Feed(client)
        self._fanout = Fanout(client, on_gap=self.recheck)
        self._clock = clock
        self._feeds: dict[str, FollowedFeed] = {}
        self._reads = asyncio.Semaphore(READS_AT_ONCE)

    async def run(self) -> None:
        """Receive facts until cancelled."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._fanout.run(), name="feed")
                while True:
                    await asyncio.sleep(TICK_S)
                    self.tick()
        finally:
            await cancel_all(self._under_way())

    def _under_way(self) -> Iterator[asyncio.Future[None]]:
        """Yield the tasks of all feeds: subscriptions outlive those who wait for them, being shared."""
        for followed in self._feeds.values():
            yield followed.subscribed
            yield from (reader.reading for reader in followed.readers if reader.reading is not None)

    def follow(self, person: str, reader: FeedReader) -> None:
        """Hand the feed of a person to a reader, from its cursor on."""
        followed = self._feeds.get(person)
        if followed is None:
            # Subscribed before the stream is read: no fact can fall between the two.
            subscribing = self._fanout.subscribe(keys.feed_news(person), partial(self._on_news, person))
            followed = FollowedFeed(asyncio.ensure_future(subscribing), self._clock.monotonic())
            self._feeds[person] = followed
        followed.readers[reader] = None
        self._catch_up(person, followed, reader)

    def unfollow(self, person: str, reader: FeedReader) -> None:
        """Hand nothing more to a reader."""
        if (followed := self._feeds.get(person)) is not None:
            followed.readers.pop(reader, None)
        if reader.reading is not None:
            reader.reading.cancel()

    async def recheck(self) -> None:
        """Have every reader catch up: facts may have been missed."""
        for person, followed in self._feeds.items():
            self._recheck_feed(person, followed)

    def tick(self) -> None:
        """Drop feeds without readers, retry failed reads, and keep followed feeds from expiring."""
        now = self._clock.monotonic()
        for person, followed in list(self._feeds.items()):
            if not followed.readers:
                # A subscription under way would be made after it was ended here.
                if followed.subscribed.done():
                    del self._feeds[person]
                    self._fanout.unsubscribe(keys.feed_news(person))
            elif now - followed.renewed_at >= RENEW_S:
                followed.renewed_at = now
                self._recheck_feed(person, followed)
            elif now >= followed.broken_until:
                for reader in followed.readers:
                    self._catch_up(person, followed, reader)

    def _on_news(self, person: str, data: bytes) -> None:
        fact = parse_news(data)
        followed = self._feeds.get(person)
        if fact is None or followed is None:
            return
        for reader in list(followed.readers):
            # While a reader catches up, the stream is the only one to tell: the order stays.
            if not reader.stale and reader.reading is None and reader.on_fact(fact):
                reader.cursor = fact.id
            else:
                reader.stale = True
                self._catch_up(person, followed, reader)

    def _recheck_feed(self, person: str, followed: FollowedFeed) -> None:
        for reader in followed.readers:
            reader.stale = True
            self._catch_up(person, followed, reader)

    def _catch_up(self, person: str, followed: FollowedFeed, reader: FeedReader) -> None:
        if reader.stale and reader.reading is None:
            reader.reading = asyncio.create_task(self._read(person, followed, reader))

    async def _read(self, person: str, followed: FollowedFeed, reader: FeedReader) -> None:
        try:
            await asyncio.shield(followed.subscribed)
            while reader.stale:
                # Reset first: a fact that comes while the stream is read sets it again.
                reader.stale = False
                async with self._reads:
                    missed = await self._feed.follow(person, reader.cursor)
                    await reader.on_missed(missed)
                reader.cursor = missed.cursor
        except (ReplyError, Refused) as exc:
            # As where a list of Redis users is older than this version: people get their list once.
            log.error("feed broken", error=str(exc)[:200])
            self._put_off(followed, reader)
            with contextlib.suppress(RedisAway, Refused):
                await reader.on_broken()
        except RedisAway:
            reader.stale = True  # the next tick tries again
            reader.on_away()
        except Exception:
            log.exception("feed not shown")
            self._put_off(followed, reader)
        finally:
            reader.reading = None

    def _put_off(self, followed: FollowedFeed, reader: FeedReader) -> None:
        reader.stale = True
        followed.broken_until = self._clock.monotonic() + BROKEN_AGAIN_S
