"""The readiness of this gateway: does Redis answer?"""

from __future__ import annotations

import asyncio
from typing import Final

from shared.errors import RedisAway
from shared.log import logger
from shared.metrics import REDIS_RECONNECTS
from shared.store.client.redis_client import RedisClient

EVERY_S: Final = 1.0

log = logger("gateway")


class RedisWatch:
    """Pings Redis once a second and keeps the result, for the readiness check."""

    def __init__(self, client: RedisClient) -> None:
        self._client = client
        self._available: bool | None = None

    @property
    def available(self) -> bool:
        """True if Redis answered the last ping."""
        return bool(self._available)

    async def run_once(self) -> None:
        """Ping once. A change is logged once."""
        before = self._available
        try:
            await self._client.command("PING")
            self._available = True
        except RedisAway as exc:
            self._available = False
            if before is not False:
                log.warning("redis away", reason=str(exc))
            return
        if before is False:
            REDIS_RECONNECTS.inc()
            log.info("redis back")

    async def run(self) -> None:
        """Ping until cancelled."""
        while True:
            await self.run_once()
            await asyncio.sleep(EVERY_S)
