"""The leases of the chats that a process delivers: for how long each is safe, their renewal, and
the fence that ends a delivery whose lease is in doubt."""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Iterator, Mapping
from typing import Final

from shared.clock import Clock
from shared.lease.keeper import keep_renewing
from shared.lease.timing import safe_period_s
from shared.store.delivery.deliveries import DeliveryQueue, LeasedChat

FENCE_PER_LEASE: Final = 30


class ChatLease:
    """A lease on one chat. `news` is set when the chat's state is to be read again. `in_doubt`: a
    post was announced and its outcome is not known. `reporting`: the outcome is being written; that
    is accepted even after the lease has expired. `ended`: nothing more is done for the chat."""

    def __init__(self, chat: LeasedChat, *, acquired_at: float, lease_s: float, clock: Clock) -> None:
        self.chat = chat
        self.session = chat.session
        self.news = asyncio.Event()
        self.in_doubt = False
        self.reporting = False
        self.ended = False
        self._clock = clock
        self._safe_period_s = safe_period_s(lease_s)
        self._renewed_at = acquired_at

    @property
    def safe_s(self) -> float:
        """The seconds for which it is safe to act for the chat; 0 = not any more."""
        return max(0.0, self._renewed_at + self._safe_period_s - self._clock.monotonic())

    @contextlib.contextmanager
    def while_reporting(self) -> Iterator[None]:
        """Keep the fence away: if an outcome is lost, another gateway sends the post again."""
        self.reporting = True
        try:
            yield
        finally:
            self.reporting = False

    def renewed(self, at: float) -> None:
        """Extend the lease after a successful call, made at `at` (`Clock.monotonic`)."""
        # A late answer of an older call must not shorten it.
        self._renewed_at = max(self._renewed_at, at)

    def lose(self) -> None:
        """Give the lease up: another process has it."""
        self._renewed_at = -math.inf


class ChatLeaseKeeper:
    """Keeps the leases of `active`, each with the task that delivers, as its owner fills it."""

    def __init__(
        self,
        deliveries: DeliveryQueue,
        active: Mapping[ChatLease, tuple[object, asyncio.Task[None]]],
        *,
        clock: Clock,
    ) -> None:
        self._deliveries = deliveries
        self._active = active
        self._clock = clock

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
        """Cancel each delivery whose lease is not safe, unless it reports an outcome."""
        for lease, (_, task) in self._active.items():
            if not lease.safe_s and not lease.reporting and not lease.ended:
                task.cancel()

    async def keep_renewing(self) -> None:
        """Renew five times a lease, until cancelled."""
        lease_s = self._deliveries.lease_s
        await keep_renewing(self.renew_once, self._active, lease_s=lease_s, clock=self._clock)

    async def keep_fencing(self) -> None:
        """Check the clock until cancelled, in a task of its own: renewing may wait for Redis."""
        while True:
            await asyncio.sleep(self._deliveries.lease_s / FENCE_PER_LEASE)
            self.fence_once()
