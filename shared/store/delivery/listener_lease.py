"""Who listens to a platform that allows one listener: a fenced lease, handed over at once when it
is given up."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from shared.clock import SYSTEM_CLOCK, Clock
from shared.errors import RedisAway
from shared.ids import nonce
from shared.store import keys
from shared.store.client.redis_client import RedisClient, Value
from shared.store.client.scripts import Script, load
from shared.store.turns.inbox import DAY_MS

KEEP_MS: Final = 30 * DAY_MS
LOOK_S: Final = 1.0
"""Whoever waits looks again after so long: the message that it is free may be lost."""


class ListenerLease(msgspec.Struct, frozen=True):
    """The lock is ours. `cursor` is what was saved under it last, by whomever."""

    token: str
    cursor: bytes = b""
    owner_lost: bool = False


class ListenerLock:
    """A lock that one replica has at a time; `name` is `<channel>` or `<channel>:<shard>`. Methods
    that ask Redis raise RedisAway.

    Listen only while it is safely held: `take`, `renew` and `save` hold it for `lease_s` from the
    moment at which the call was *made*. Every call may be made again when its answer was lost.
    """

    def __init__(self, client: RedisClient, name: str, *, lease_s: float, clock: Clock = SYSTEM_CLOCK) -> None:
        self.name = name
        self.lease_s = lease_s
        self.owner = nonce()
        self.freed = keys.freed(name)
        """The pub/sub channel that says that it is free: `await fanout.subscribe(lock.freed,
        lock.wake)`."""
        self._client = client
        self._clock = clock
        self._key = keys.lock(name)
        self._times = [int(lease_s * 1000), KEEP_MS]
        self._free = asyncio.Event()
        self._was_unavailable = False
        self._grace_until = clock.monotonic()

    async def acquire(self) -> ListenerLease | float:
        """The lock, or the seconds after which to try again (at most `LOOK_S`; see `wait`).

        After Redis was away it is left to whoever held it for half a lease more.
        """
        now = self._clock.monotonic()
        if self._was_unavailable:
            self._grace_until = now + self.lease_s / 2
        lease_ms, keep_ms = self._times
        self._free.clear()
        code, *told = await self._run(
            load("delivery/listener_acquire"), [self.owner, lease_ms, int(now < self._grace_until), keep_ms]
        )
        self._was_unavailable = False
        if code == 0:
            return float(min(LOOK_S, told[0] / 1000))
        token, cursor, lost = told
        return ListenerLease(token.decode(), cursor, lost == b"1")

    async def renew(self, held: ListenerLease) -> bool:
        """Keep it; False = it is lost."""
        return bool(await self._run(load("delivery/listener_renew"), [self._lease(held), *self._times]) == 1)

    async def save_cursor(self, held: ListenerLease, cursor: bytes) -> bool:
        """Keep it, and remember how far was read, for whoever has it next; False = it is lost."""
        return bool(await self._run(load("delivery/listener_renew"), [self._lease(held), *self._times, cursor]) == 1)

    async def release(self, held: ListenerLease) -> None:
        """Let another replica have it at once. Nothing happens when it is lost."""
        await self._run(load("delivery/listener_release"), [self._lease(held)], self.freed)

    def wake(self, data: bytes = b"") -> None:
        """End a `wait`: somebody said that the lock is free."""
        self._free.set()

    async def wait(self, seconds: float) -> None:
        """Return after so long, or when the lock was given up since the last `take`."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._free.wait()

    def _lease(self, held: ListenerLease) -> str:
        return f"{self.owner}:{held.token}"

    async def _run(self, script: Script, args: Sequence[Value], *more: str) -> Any:
        try:
            return await self._client.run(script, [self._key, *more], args)
        except RedisAway:
            self._was_unavailable = True
            raise
