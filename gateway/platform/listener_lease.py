"""The lock under which a channel listens: the locks of a run mode, the renewal of one, and the
cursor kept with it."""

from __future__ import annotations

import asyncio

from gateway.platform.protocol import Platform
from shared.backoff import Backoff
from shared.clock import SYSTEM_CLOCK, Clock
from shared.errors import RedisAway
from shared.lease.timing import renewal_period_s, safe_period_s
from shared.store.client.redis_client import RedisClient
from shared.store.delivery.listener_lease import ListenerLease, ListenerLock


class ListenerCursor:
    """The `Cursor` of a channel that listens alone. It is kept with the lock, so only its holder
    can move it."""

    def __init__(self) -> None:
        self._lock: ListenerLock | None = None
        self._held: ListenerLease | None = None
        self._value = b""

    def read(self) -> bytes:
        return self._value

    async def save(self, value: bytes) -> None:
        if self._lock is not None and self._held is not None and await self._lock.save_cursor(self._held, value):
            self._value = value

    def bind(self, lock: ListenerLock, held: ListenerLease) -> None:
        """Start writing under a lock that this process has claimed."""
        self._lock, self._held, self._value = lock, held, held.cursor

    def unbind(self) -> None:
        """Stop writing: the lock is released or lost."""
        self._lock = self._held = None


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
