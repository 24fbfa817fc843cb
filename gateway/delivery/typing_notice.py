""" "Is typing" in a chat while its turn runs. Nothing waits for it, and its errors are dropped."""

from __future__ import annotations

import asyncio
import contextlib
import math
from functools import partial
from typing import Final

from gateway.delivery.chat_lease import ChatLease
from gateway.delivery.context import DeliveryContext
from gateway.delivery.platform_calls import Rates
from gateway.platform.protocol import NotDelivered, PostTarget
from shared.errors import LeaseLost, RedisAway
from shared.tasks import cancel_all

AFTER_S: Final = 0.5
"""A turn that is answered sooner is not announced."""

CALL_S: Final = 5.0


class TypingNotice:
    """The typing notice of one chat."""

    def __init__(self, context: DeliveryContext, lease: ChatLease) -> None:
        self._context = context
        self._lease = lease
        self._next_at = context.clock.monotonic() + AFTER_S
        self._sending: asyncio.Task[None] | None = None

    def send_if_due(self, target: PostTarget, rates: Rates) -> float:
        """Start a task that sends the notice if it is due; return the seconds until the next
        one."""
        every_s, now = self._context.platform.abilities.typing_every_s, self._context.clock.monotonic()
        if not every_s:
            return math.inf
        if now >= self._next_at:
            self._next_at = now + every_s
            if self._sending is None or self._sending.done():
                self._sending = asyncio.create_task(self._send(target, rates), name="typing")
        return max(0.001, self._next_at - now)

    async def close(self) -> None:
        """Cancel a call that is under way."""
        if self._sending is not None:
            await cancel_all([self._sending])

    async def _send(self, target: PostTarget, rates: Rates) -> None:
        with contextlib.suppress(RedisAway, LeaseLost, NotDelivered):
            if await self._context.deliveries.reserve_call(self._lease.chat, rates.typing) == 0:
                call = partial(self._context.platform.typing, target)
                await self._context.calls.run(self._lease, call, within_s=CALL_S)
