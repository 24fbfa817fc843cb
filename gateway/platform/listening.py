"""Listening to a platform: by every replica, by some of them, or by one at a time; and the position
up to which the one has read.

A replica listens while it holds a lock in Redis (`shared.store.delivery.listener_lease`). One that
ends releases its lock at once, and one whose lock is in doubt stops listening at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Sequence
from typing import Final

from gateway.platform.protocol import ChannelBroken, Inlet, NotDelivered, Platform, Throttled
from shared.backoff import RECONNECT_CAP_S, RECONNECT_FIRST_S, Backoff
from shared.clock import SYSTEM_CLOCK, Clock
from shared.errors import RedisAway, Refused
from shared.lease.timing import renewal_period_s, safe_period_s
from shared.log import logger
from shared.store.client.redis_client import RedisClient
from shared.store.delivery.fanout import Fanout
from shared.store.delivery.listener_lease import ListenerLease, ListenerLock
from shared.tasks import cancel_all, completed, event_within, until_first

AGAIN_FIRST_S: Final = 0.5
AGAIN_CAP_S: Final = 30.0
SETTLED_S: Final = 30.0  # a connection that lasted this long resets the back-off
FINISH_S: Final = 1.3  # seconds in which a listener may finish at the end of the process
GIVE_UP_S: Final = 0.4

log = logger("listening")


class ListenerCursor:
    """The `Cursor` of a channel that listens alone, kept with the lock: its holder moves it."""

    def __init__(self) -> None:
        self._lock: ListenerLock | None = None
        self._held: ListenerLease | None = None
        self._value = b""

    def read(self) -> bytes:
        return self._value

    async def save(self, value: bytes) -> None:
        if self._lock and self._held and await self._lock.save_cursor(self._held, value):
            self._value = value

    def bind(self, lock: ListenerLock, held: ListenerLease) -> None:
        """Start writing under a lock that this process has claimed."""
        self._lock = lock
        self._held = held
        self._value = held.cursor

    def unbind(self) -> None:
        """Stop writing: the lock is released or lost."""
        self._lock = self._held = None


class PlatformListener:
    """Keeps `platform` listening, in the run modes socket and exclusive."""

    def __init__(
        self,
        platform: Platform,
        locks: Sequence[ListenerLock],
        cursor: ListenerCursor,
        fanout: Fanout,
        *,
        draining: asyncio.Event,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._platform = platform
        self._locks = locks
        self._cursor = cursor
        self._fanout = fanout
        self._draining = draining
        self._clock = clock
        self._freed = asyncio.Event()
        self.listens = False  # now

    async def run(self, inlet: Inlet) -> None:
        """Listen, or wait for a lock, until the process drains. Raises ChannelBroken."""
        if not self._locks:
            await self._listen_until_drained(inlet)
            return
        for lock in self._locks:
            await self._fanout.subscribe(lock.freed, lambda _: self._freed.set())
        while not self._draining.is_set():
            claimed_at = self._clock.monotonic()
            claimed = await self._claim_lock()
            if isinstance(claimed, float):
                waiting = [asyncio.create_task(event.wait()) for event in (self._freed, self._draining)]
                await until_first(*waiting, timeout_s=claimed)
            else:
                await self._listen_under(*claimed, claimed_at, inlet)

    async def _claim_lock(self) -> tuple[ListenerLock, ListenerLease] | float:
        """Claim one of the locks; if none is free, return the seconds until the next try."""
        # Cleared before the tries: a lock freed during them must end the wait that follows.
        self._freed.clear()
        next_s = RECONNECT_CAP_S
        # In random order, so that waiting replicas do not all try the same lock.
        for lock in random.sample(self._locks, len(self._locks)):
            try:
                held = await lock.acquire()
            except RedisAway:
                return random.uniform(RECONNECT_FIRST_S, RECONNECT_CAP_S)
            if isinstance(held, ListenerLease):
                return lock, held
            next_s = min(next_s, held)
        return next_s

    async def _listen_under(self, lock: ListenerLock, held: ListenerLease, claimed_at: float, inlet: Inlet) -> None:
        """Listen while the lock is safe, then release it."""
        channel = self._platform.name
        log.info("listening", channel=channel, lock=lock.name, owner_lost=held.owner_lost)
        self._cursor.bind(lock, held)
        listening = asyncio.create_task(self._listen_until_drained(inlet), name="listener")
        keeping = asyncio.create_task(keep_lock(lock, held, claimed_at, self._clock), name="listener's lock")
        try:
            done = await until_first(listening, keeping)
        finally:
            self._cursor.unbind()
            # Also when this is cancelled: else no replica listens until the lock has lapsed.
            await completed(asyncio.create_task(_release(lock, held)))
        if keeping in done:
            log.warning("lock lost", channel=channel, lock=lock.name)
        for task in done:
            task.result()

    async def _listen_until_drained(self, inlet: Inlet) -> None:
        """Keep listening until the process drains, then give the listener a moment to finish."""
        listening = asyncio.create_task(self._listen(inlet), name="listen")
        drained = asyncio.create_task(self._draining.wait())
        try:
            await asyncio.wait({listening, drained}, return_when=asyncio.FIRST_COMPLETED)
            if not listening.done():
                await asyncio.wait({listening}, timeout=FINISH_S)
        finally:
            await cancel_all([listening, drained])
        if listening.done() and not listening.cancelled():
            listening.result()

    async def _listen(self, inlet: Inlet) -> None:
        backoff = Backoff(AGAIN_FIRST_S, AGAIN_CAP_S)
        while not self._draining.is_set():
            began_at = self._clock.monotonic()
            again_s = 0.0
            why = "it ended"
            self.listens = True
            try:
                await self._platform.listen(inlet, self._draining)
            except Throttled as throttled:
                why = throttled.reason
                again_s = throttled.retry_after_s
            except (NotDelivered, RedisAway) as exc:
                why = str(exc)
            except Refused as refused:
                why = refused.message
                again_s = refused.retry_after_s
            except ChannelBroken:
                raise
            except Exception:
                log.exception("listener broke", channel=self._platform.name)
                why = "a fault in the channel's code"
            finally:
                self.listens = False
            if self._draining.is_set():
                return
            if self._clock.monotonic() - began_at > SETTLED_S:
                backoff.reset()
            again_s = max(again_s, next(backoff))
            log.warning("not listening", channel=self._platform.name, reason=why, again_s=round(again_s, 1))
            await event_within(self._draining, again_s)


def locks_of(
    platform: Platform, client: RedisClient, *, lease_s: float, clock: Clock = SYSTEM_CLOCK
) -> list[ListenerLock]:
    """Return the locks of which a replica needs one to listen; none = every replica listens."""
    match platform.run_mode:
        case "exclusive":
            names = [platform.name]
        case "socket":
            names = [f"{platform.name}:{number}" for number in range(platform.abilities.sockets)]
        case "webhook":
            names = []
    return [ListenerLock(client, name, lease_s=lease_s, clock=clock) for name in names]


async def _release(lock: ListenerLock, held: ListenerLease) -> None:
    with contextlib.suppress(RedisAway, TimeoutError):
        async with asyncio.timeout(GIVE_UP_S):
            await lock.release(held)


async def keep_lock(lock: ListenerLock, held: ListenerLease, claimed_at: float, clock: Clock) -> None:
    """Renew a lock that was claimed at `claimed_at`; return when it is lost or no longer safe."""
    kept_at = claimed_at
    while True:
        safe_s = kept_at + safe_period_s(lock.lease_s) - clock.monotonic()
        try:
            async with asyncio.timeout(max(0.0, safe_s)):
                await asyncio.sleep(renewal_period_s(lock.lease_s))
                for wait_s in Backoff():
                    asked_at = clock.monotonic()
                    try:
                        if not await lock.renew(held):
                            return
                        break
                    except RedisAway:
                        await asyncio.sleep(wait_s)
        except TimeoutError:
            return
        kept_at = asked_at
