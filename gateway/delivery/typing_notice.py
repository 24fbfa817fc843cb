"""Saying "is typing" in a chat while its turn runs. Errors are nobody's concern, and nothing waits
for it."""

from __future__ import annotations

import asyncio
import contextlib
import math
from functools import partial
from typing import Final

from gateway.delivery.chat_lease import ChatLease
from gateway.delivery.platform_calls import PlatformCalls
from gateway.delivery.rates import Rates
from gateway.platform.protocol import NotDelivered, Platform, PostTarget
from shared.clock import Clock
from shared.errors import LeaseLost, RedisAway
from shared.store.delivery.deliveries import DeliveryQueue
from shared.tasks import cancel_all

AFTER_S: Final = 0.5
"""A turn that is answered within so long is not announced."""

CALL_S: Final = 5.0


class TypingNotice:
    """That of one chat."""

    def __init__(
        self, lease: ChatLease, platform: Platform, deliveries: DeliveryQueue, calls: PlatformCalls, *, clock: Clock
    ) -> None:
        self._lease = lease
        self._platform = platform
        self._deliveries = deliveries
        self._calls = calls
        self._clock = clock
        self._next_at = clock.monotonic() + AFTER_S
        self._sending: asyncio.Task[None] | None = None

    def send_if_due(self, target: PostTarget, rates: Rates) -> float:
        """Say it, if it is time, in a task of its own; in how many seconds it will be time
        again."""
        every_s, now = self._platform.abilities.typing_every_s, self._clock.monotonic()
        if not every_s:
            return math.inf
        if now >= self._next_at:
            self._next_at = now + every_s
            if self._sending is None or self._sending.done():
                self._sending = asyncio.create_task(self._send(target, rates), name="typing")
        return max(0.001, self._next_at - now)

    async def close(self) -> None:
        """End a call under way."""
        if self._sending is not None:
            await cancel_all([self._sending])

    async def _send(self, target: PostTarget, rates: Rates) -> None:
        with contextlib.suppress(RedisAway, LeaseLost, NotDelivered):
            if await self._deliveries.reserve_call(self._lease.chat, rates.typing) == 0:
                await self._calls.run(self._lease, partial(self._platform.typing, target), within_s=CALL_S)
