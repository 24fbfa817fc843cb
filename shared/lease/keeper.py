"""The loop that renews the leases of a process."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection

from shared.backoff import Backoff
from shared.clock import Clock
from shared.errors import RedisAway
from shared.lease.timing import renewal_period_s
from shared.metrics import LEASE_RENEW_LATE


async def keep_renewing(
    renew_once: Callable[[], Awaitable[None]],
    leases: Collection[object],
    *,
    lease_s: float,
    clock: Clock,
    busy: asyncio.Event | None = None,
) -> None:
    """Call `renew_once` every fifth of the lease while there are `leases`, until cancelled. A
    renewal that raises RedisAway is sent again with back-off: the owners of the leases fence
    themselves meanwhile. `busy` is set while there are leases, so that an idle process does not
    wake."""
    every_s = renewal_period_s(lease_s)
    while True:
        if busy is not None:
            await busy.wait()
        # First the wait, then the renewal: what was claimed just now needs none.
        await asyncio.sleep(every_s)
        backoff = Backoff()
        started = clock.monotonic()
        while leases:
            try:
                await renew_once()
                break
            except RedisAway:
                await backoff.sleep()
        if clock.monotonic() - started > lease_s / 2 - every_s:
            LEASE_RENEW_LATE.inc()
