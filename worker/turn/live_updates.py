"""Live text of a running turn, by pub/sub: deltas in small bundles."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Final

from shared.clock import SYSTEM_CLOCK, Clock
from shared.errors import RedisAway
from shared.messages.live import DeltaEvent, LiveEvent, ProgressEvent
from shared.metrics import FIRST_TOKEN_SECONDS
from shared.store.client.redis_client import RedisClient
from shared.store.delivery.fanout import publish
from shared.tasks import cancel_all

BUNDLE_S: Final = 0.04
FULL_EVERY_S: Final = 1.5  # between two whole texts, for readers that joined late or missed a piece
UNWATCHED_PAUSE_S: Final = 1.0  # without any event, after one that had no subscriber


class LiveUpdates:
    """The TurnProgress of one attempt at a turn. Text is bundled for 40 ms; the next full text
    repairs a lost bundle. `visible` is the text of the running reply so far. Nothing is sent while
    `suspended()` is true, because another worker may own the turn. Text is left out once
    `reply_sent()` is true: the message tool has answered, the text at the end is not sent."""

    def __init__(
        self,
        client: RedisClient,
        session: str,
        turn: int,
        attempt: int,
        *,
        suspended: Callable[[], bool] = lambda: False,
        reply_sent: Callable[[], bool] = lambda: False,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self.visible = ""
        self._client = client
        self._session, self._turn, self._attempt = session, turn, attempt
        self._suspended = suspended
        self._reply_sent = reply_sent
        self._clock = clock
        self._seq = self._sent = 0
        self._full_at = self._quiet_until = 0.0
        self._made_at: float | None = clock.monotonic()
        self._dirty: asyncio.Event | None = None
        self._open = False
        self._pump: asyncio.Task[None] | None = None

    async def __aenter__(self) -> LiveUpdates:
        self._open = True
        return self

    async def __aexit__(self, *_: object) -> None:
        self._open = False
        if self._pump is not None:
            await cancel_all([self._pump])

    async def add_text(self, delta: str) -> None:
        if self._reply_sent():
            return
        if self._made_at is not None:
            FIRST_TOKEN_SECONDS.observe(self._clock.monotonic() - self._made_at)
            self._made_at = None
        self.visible += delta
        self._send_soon()

    async def reset_text(self) -> None:
        if self.visible:
            self.visible = ""
            self._full_at = 0.0
            self._send_soon()

    def _send_soon(self) -> None:
        if self._dirty is None:  # made on demand: many turns stream nothing before their end
            self._dirty = asyncio.Event()
        self._dirty.set()
        if self._open and self._pump is None:
            self._pump = asyncio.create_task(self._keep_sending(self._dirty))

    async def add_activity(self, text: str) -> None:
        await self._publish(ProgressEvent(self._turn, text))

    async def send_once(self) -> None:
        """Send the text that has not been sent yet, unless the chat had no subscriber just now."""
        now = self._clock.monotonic()
        if now < self._quiet_until or self._suspended():
            self._full_at = 0.0
            return
        full = now - self._full_at >= FULL_EVERY_S
        text = self.visible if full else self.visible[self._sent :]
        if full:
            self._full_at = now
        self._sent = len(self.visible)
        event = DeltaEvent(self._turn, self._attempt, self._seq, text, full)
        self._seq += 1
        if await self._publish(event) == 0:
            self._quiet_until = now + UNWATCHED_PAUSE_S
            self._full_at = 0.0

    async def _publish(self, event: LiveEvent) -> int:
        with contextlib.suppress(RedisAway):
            if not self._suspended():
                return await publish(self._client, self._session, event)
        return 0

    async def _keep_sending(self, dirty: asyncio.Event) -> None:
        while True:
            await dirty.wait()
            dirty.clear()
            await self.send_once()
            await asyncio.sleep(BUNDLE_S)
