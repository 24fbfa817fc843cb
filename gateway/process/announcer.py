"""The presence record of this gateway, by which operators see that it lives."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from gateway.channel import Channel
from shared.clock import SYSTEM_CLOCK, Clock
from shared.errors import RedisAway, Refused
from shared.process.stats import StatsReader
from shared.store.client.redis_client import RedisClient
from shared.store.fleet.presence import PRESENCE_EVERY_S, Presence, announce, remove_presence
from shared.version import VERSION

FAREWELL_S: Final = 1.0


class Announcer:
    """Writes this process's presence record every 5 s. While Redis is unavailable the record
    expires; it comes back with Redis."""

    def __init__(
        self,
        client: RedisClient,
        channels: Sequence[Channel],
        draining: Callable[[], bool],
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._client = client
        self._channels = channels
        self._draining = draining
        self._stats = StatsReader(clock)
        host = socket.gethostname()
        self._record = Presence(
            kind="gateway",
            name=f"{host}-{os.getpid()}",
            host=host,
            pid=os.getpid(),
            started_at=clock.now_ms(),
            version=VERSION,
        )

    async def run_once(self) -> None:
        """Write the record."""
        details = {"channels": " ".join(channel.name for channel in self._channels)}
        for channel in self._channels:
            details |= channel.facts()
        record = msgspec.structs.replace(
            self._record, draining=self._draining(), details=details, stats=self._stats.read()
        )
        with contextlib.suppress(RedisAway, Refused):
            await announce(self._client, record)

    async def run(self) -> None:
        """Write it until cancelled."""
        while True:
            await self.run_once()
            await asyncio.sleep(PRESENCE_EVERY_S)

    async def farewell(self) -> None:
        """Remove the record, if Redis answers within a second."""
        with contextlib.suppress(RedisAway, TimeoutError):
            async with asyncio.timeout(FAREWELL_S):
                await remove_presence(self._client, self._record)
