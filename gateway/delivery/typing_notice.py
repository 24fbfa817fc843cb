"""Saying "is typing" in a chat while its turn runs. Errors are nobody's concern, and nothing waits
for it."""

from __future__ import annotations

import asyncio
import contextlib
import math
from functools import partial
from typing import Final

from gateway.delivery.chat_lease import Hold
from gateway.delivery.platform_calls import Calls
from gateway.delivery.rates import Rates
from gateway.platform.protocol import NotDelivered, Place, Platform
from shared.clock import Clock
from shared.errors import LeaseLost, RedisAway
from shared.store.delivery.deliveries import Deliveries
from shared.tasks import cancel_all

AFTER_S: Final = 0.5
"""A turn that is answered within so long is not announced."""

CALL_S: Final = 5.0


class TypingNotice:
    """That of one chat."""

    def __init__(self, hold: Hold, platform: Platform, deliveries: Deliveries, calls: Calls, *, clock: Clock) -> None:
        self._hold = hold
        self._platform = platform
        self._deliveries = deliveries
        self._calls = calls
        self._clock = clock
        self._next_at = clock.monotonic() + AFTER_S
        self._saying: asyncio.Task[None] | None = None

    def say(self, place: Place, rates: Rates) -> float:
        """Say it, if it is time, in a task of its own; in how many seconds it will be time
        again."""
        every_s, now = self._platform.abilities.typing_every_s, self._clock.monotonic()
        if not every_s:
            return math.inf
        if now >= self._next_at:
            self._next_at = now + every_s
            if self._saying is None or self._saying.done():
                self._saying = asyncio.create_task(self._say(place, rates), name="typing")
        return max(0.001, self._next_at - now)

    async def close(self) -> None:
        """End a call under way."""
        if self._saying is not None:
            await cancel_all([self._saying])

    async def _say(self, place: Place, rates: Rates) -> None:
        with contextlib.suppress(RedisAway, LeaseLost, NotDelivered):
            if await self._deliveries.may_edit(self._hold.delivery, rates.typing) == 0:
                await self._calls.make(self._hold, partial(self._platform.typing, place), within_s=CALL_S)
