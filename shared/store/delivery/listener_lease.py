"""Lease of the only listener that a platform allows: fenced, and handed over at once on release."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any, Final

import msgspec

from shared.clock import SYSTEM_CLOCK, Clock
from shared.errors import RedisAway
from shared.ids import nonce
from shared.store import keys
from shared.store.client.redis_client import RedisClient, Value
from shared.store.turns.inbox import DAY_MS

KEEP_MS: Final = 30 * DAY_MS
LOOK_S: Final = 1.0
"""Longest wait of a replica before it tries again: the announcement of a release may be lost."""


class ListenerLease(msgspec.Struct, frozen=True):
    """The lock is held. `cursor` is the last one that any holder saved."""

    token: str
    cursor: bytes = b""
    owner_lost: bool = False


class ListenerLock:
    """A lock that one replica holds at a time; `name` is `<channel>` or `<channel>:<shard>`.
    Methods that call Redis raise RedisAway. Listen only while it is safely held: `acquire`, `renew`
    and `save_cursor` hold it for `lease_s` from the moment at which the call was *made*. Every call
    may be repeated when its reply was lost."""

    def __init__(self, client: RedisClient, name: str, *, lease_s: float, clock: Clock = SYSTEM_CLOCK) -> None:
        self.name = name
        self.lease_s = lease_s
        self.owner = nonce()
        self.freed = keys.freed(name)
        """The pub/sub channel that announces a release, for `fanout.subscribe(freed, wake)`."""
        self._client = client
        self._clock = clock
        self._key = keys.lock(name)
        self._lease_ms = int(lease_s * 1000)
        self._free = asyncio.Event()
        self._was_unavailable = False
        self._grace_until = clock.monotonic()

    async def acquire(self) -> ListenerLease | float:
        """Acquire the lock, or return the seconds after which to try again (see `wait`), at most
        `LOOK_S`. After Redis was unavailable its last holder keeps it for another half lease."""
        # Grace counts from the first attempt after the outage, which is later than its end.
        now = self._clock.monotonic()
        if self._was_unavailable:
            self._grace_until = now + self.lease_s / 2
        # Before the call: a release that is announced while it runs must end the following wait.
        self._free.clear()
        grace = int(now < self._grace_until)
        code, *result = await self._run(
            "listeners/acquire", owner=self.owner, lease_ms=self._lease_ms, grace=grace, keep_ms=KEEP_MS
        )
        self._was_unavailable = False
        if code == 0:
            return float(min(LOOK_S, result[0] / 1000))
        token, cursor, lost = result
        return ListenerLease(token.decode(), cursor, lost == b"1")

    async def renew(self, held: ListenerLease) -> bool:
        """Renew the lock; False = it is lost."""
        return await self.save_cursor(held, b"")

    async def save_cursor(self, held: ListenerLease, cursor: bytes) -> bool:
        """Renew the lock and store how far was read, for the next holder (empty = as it is); False
        = it is lost."""
        renewed = await self._run(
            "listeners/renew", lease=self._lease(held), lease_ms=self._lease_ms, keep_ms=KEEP_MS, cursor=cursor
        )
        return bool(renewed == b"renewed")

    async def release(self, held: ListenerLease) -> None:
        """Release the lock, if it is not lost, so that another replica can have it at once."""
        await self._run("listeners/release", freed=self.freed, lease=self._lease(held))

    def wake(self, data: bytes = b"") -> None:
        """End a `wait` because the lock was announced to be free."""
        self._free.set()

    async def wait(self, seconds: float) -> None:
        """Return after `seconds`, or when the lock was released since the last `acquire`."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._free.wait()

    def _lease(self, held: ListenerLease) -> str:
        return f"{self.owner}:{held.token}"

    async def _run(self, name: str, /, **values: Value) -> Any:
        try:
            return await self._client.run_with(name, {"lock": self._key, **values}, keys.Whose())
        except RedisAway:
            self._was_unavailable = True
            raise
