"""Renewal of the leases of the chats that a process delivers, and the fence that ends a delivery
whose lease is in doubt."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final

from gateway.delivery.chat_delivery import ChatDelivery
from gateway.delivery.chat_lease import ChatLease
from shared.clock import Clock
from shared.lease.keeper import keep_renewing
from shared.store.delivery.deliveries import DeliveryQueue

FENCE_PER_LEASE: Final = 30

ActiveChats = Mapping[ChatLease, tuple[ChatDelivery, asyncio.Task[None]]]
"""The chats that are delivered, each by a task."""


class ChatLeaseKeeper:
    """Keeps the leases of `active`, which its owner fills and empties."""

    def __init__(self, deliveries: DeliveryQueue, active: ActiveChats, *, clock: Clock) -> None:
        self._deliveries = deliveries
        self._active = active
        self._clock = clock
        self._lease_s = deliveries.lease_s

    async def renew_once(self) -> None:
        """Renew the lease of every active chat, in one call. Raises RedisAway."""
        leases = [lease for lease in self._active if lease.safe_s and not lease.ended]
        asked_at = self._clock.monotonic()
        lost = await self._deliveries.renew([lease.chat for lease in leases])
        for lease in leases:
            # A chat that was given back while the call was under way is not lost.
            if lease.session in lost and not lease.ended:
                lease.lose()
            else:
                lease.renewed(asked_at)
        if lost:
            self.fence_once()

    def fence_once(self) -> None:
        """Cancel the delivery of every chat whose lease is not safe any more, except those that are
        reporting an outcome."""
        for lease, (_, task) in self._active.items():
            if not lease.safe_s and not lease.reporting and not lease.ended:
                task.cancel()

    async def keep_renewing(self) -> None:
        """Renew five times a lease, until cancelled."""
        await keep_renewing(self.renew_once, self._active, lease_s=self._lease_s, clock=self._clock)

    async def keep_fencing(self) -> None:
        """Check the clock until cancelled. A task of its own, for the renewing one may be waiting
        for Redis."""
        while True:
            await asyncio.sleep(self._lease_s / FENCE_PER_LEASE)
            self.fence_once()
