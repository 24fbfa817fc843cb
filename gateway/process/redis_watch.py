"""Whether this gateway can do its work: is Redis there?"""

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
    """Asks Redis once a second, and remembers the answer for whoever wants to know whether we are
    ready."""

    def __init__(self, client: RedisClient) -> None:
        self._client = client
        self._there: bool | None = None

    @property
    def there(self) -> bool:
        """Whether Redis answered when it was last asked."""
        return bool(self._there)

    async def run_once(self) -> None:
        """Ask. A change is logged once."""
        before = self._there
        try:
            await self._client.command("PING")
            self._there = True
        except RedisAway as exc:
            self._there = False
            if before is not False:
                log.warning("redis away", reason=str(exc))
            return
        if before is False:
            REDIS_RECONNECTS.inc()
            log.info("redis back")

    async def run(self) -> None:
        """Ask until cancelled."""
        while True:
            await self.run_once()
            await asyncio.sleep(EVERY_S)
