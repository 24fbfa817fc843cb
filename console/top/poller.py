"""Looking at the fleet again and again, also while Redis comes and goes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from typing import Final

import msgspec

from console.top.fleet_snapshot import take_snapshot
from console.top.page import Observation, Unavailable
from console.top.problems import problems
from shared.errors import RedisAway, SettingsError
from shared.settings import RedisUrl
from shared.store.client.redis_client import RedisClient

CLIENT_NAME: Final = "shoal-top"


class SnapshotPoller:
    """`address` says where Redis is. It is asked again while Redis is away: an embedded one may
    come back elsewhere."""

    def __init__(self, address: Callable[[], str]) -> None:
        self.last = Observation()
        self._address = address
        self._url = ""
        self._client: RedisClient | None = None
        self._config = True

    async def look(self) -> Observation:
        """Look once. While Redis is away it is the last look, with since when."""
        try:
            if self._client is None or self.last.away is not None:
                await self._connect()
            assert self._client is not None
            found = await take_snapshot(self._client, config=self._config)
        except (RedisAway, SettingsError) as exc:
            since = self.last.away.since if self.last.away else time.time()
            where = f"; looked at {RedisUrl(self._url)}" if self._url else ""
            self.last = msgspec.structs.replace(self.last, away=Unavailable(since, f"{exc}{where}"))
            return self.last
        self._config = found.redis.fsync is not None  # who refuses CONFIG is not asked again, and logs no refusals
        self.last = Observation(found, tuple(problems(found)))
        return self.last

    async def looks(self, every_s: float) -> AsyncIterator[Observation]:
        """Now and then every `every_s`, for ever."""
        while True:
            yield await self.look()
            await asyncio.sleep(every_s)

    async def close(self) -> None:
        """Close the connection."""
        if self._client is not None:
            await self._client.close()

    async def _connect(self) -> None:
        url = self._address()
        if url != self._url:
            await self.close()
            self._url, self._client = url, RedisClient(url, name=CLIENT_NAME)
        self._config = True
