"""Repeated snapshots of the fleet, also while Redis comes and goes."""

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
    """Polls the fleet. `address` is called again while Redis is unavailable: an embedded one may
    come back at another address."""

    def __init__(self, address: Callable[[], str]) -> None:
        self.last = Observation()
        self._address = address
        self._url = ""
        self._client: RedisClient | None = None
        self._config = True

    async def poll(self) -> Observation:
        """Take a snapshot. While Redis is unavailable, return the last one and since when."""
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
        self._config = (
            found.redis.fsync is not None
        )  # a server that refused CONFIG is not asked again, or it would log each refusal
        self.last = Observation(found, tuple(problems(found)))
        return self.last

    async def observations(self, every_s: float) -> AsyncIterator[Observation]:
        """Yield an observation now and every `every_s`, forever."""
        while True:
            yield await self.poll()
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
