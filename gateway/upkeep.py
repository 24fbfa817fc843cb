"""The watch of a gateway process over Redis."""

from __future__ import annotations

import asyncio
from typing import Final

from shared.errors import RedisAway
from shared.log import logger
from shared.metrics import REDIS_RECONNECTS
from shared.store.client.redis_client import RedisClient

WATCH_EVERY_S: Final = 1.0

log = logger("gateway")


class RedisWatch:
    """Asks Redis once a second whether it takes writes, for the readiness check. A PING would not
    do: a primary that was demoted still answers it. `available` is None before the first answer."""

    def __init__(self, client: RedisClient) -> None:
        self.available: bool | None = None
        self._client = client

    async def run(self) -> None:
        """Ask until cancelled. A change is logged once."""
        while True:
            before = self.available
            try:
                await self._client.check_role()
                self.available = True
                if before is False:
                    REDIS_RECONNECTS.inc()
                    log.info("redis back")
            except RedisAway as exc:
                self.available = False
                if before is not False:
                    log.warning("redis away", reason=str(exc))
            await asyncio.sleep(WATCH_EVERY_S)
