"""The chores of a gateway process: its presence record, and its watch over Redis."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Callable, Sequence
from typing import Final

from msgspec.structs import replace

from gateway.channel import Channel
from shared.clock import SYSTEM_CLOCK
from shared.errors import RedisAway, Refused
from shared.log import logger
from shared.metrics import REDIS_RECONNECTS
from shared.process.stats import StatsReader
from shared.store.client.redis_client import RedisClient
from shared.store.fleet.presence import PRESENCE_EVERY_S, Presence, announce, remove_presence
from shared.version import VERSION

FAREWELL_S: Final = 1.0
WATCH_EVERY_S: Final = 1.0

log = logger("gateway")


class Announcer:
    """Writes this process's presence record every 5 s, by which operators see that it lives. While
    Redis is unavailable the record expires; it comes back with Redis."""

    def __init__(self, client: RedisClient, channels: Sequence[Channel], draining: Callable[[], bool]) -> None:
        self._client = client
        self._channels = channels
        self._draining = draining
        self._stats = StatsReader(SYSTEM_CLOCK)
        host, pid = socket.gethostname(), os.getpid()
        self._record = Presence(
            kind="gateway",
            name=f"{host}-{pid}",
            host=host,
            pid=pid,
            started_at=SYSTEM_CLOCK.now_ms(),
            version=VERSION,
        )

    async def run(self) -> None:
        """Write the record until cancelled."""
        while True:
            details = {"channels": " ".join(channel.name for channel in self._channels)}
            for channel in self._channels:
                details |= channel.facts()
            stats, draining = self._stats.read(), self._draining()
            record = replace(self._record, draining=draining, details=details, stats=stats)
            with contextlib.suppress(RedisAway, Refused):
                await announce(self._client, record)
            await asyncio.sleep(PRESENCE_EVERY_S)

    async def farewell(self) -> None:
        """Remove the record, if Redis answers within a second."""
        with contextlib.suppress(RedisAway, TimeoutError):
            async with asyncio.timeout(FAREWELL_S):
                await remove_presence(self._client, self._record)


class RedisWatch:
    """Pings Redis once a second, for the readiness check. `available` is None before that."""

    def __init__(self, client: RedisClient) -> None:
        self.available: bool | None = None
        self._client = client

    async def run(self) -> None:
        """Ping until cancelled. A change is logged once."""
        while True:
            before = self.available
            try:
                await self._client.command("PING")
                self.available = True
                if before is False:
                    REDIS_RECONNECTS.inc()
                    log.info("redis back")
            except RedisAway as exc:
                self.available = False
                if before is not False:
                    log.warning("redis away", reason=str(exc))
            await asyncio.sleep(WATCH_EVERY_S)
