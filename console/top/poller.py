"""Repeated snapshots of the fleet, also while Redis comes and goes."""

from __future__ import annotations

import time
from collections.abc import Callable

import msgspec

from console.top.fleet_snapshot import FleetSnapshot, take_snapshot
from shared.errors import RedisAway, SettingsError
from shared.settings import RedisUrl
from shared.store.client.redis_client import RedisClient


class Unavailable(msgspec.Struct, frozen=True):
    """Redis does not answer: since when (s since 1970), and why."""

    since: float
    why: str


class Observation(msgspec.Struct, frozen=True):
    """The last snapshot, and the outage if there is one."""

    found: FleetSnapshot | None = None
    away: Unavailable | None = None


class SnapshotPoller:
    """Polls the fleet. `address` is called again while Redis is unavailable: an embedded one may
    come back at another address."""

    def __init__(self, address: Callable[[], str]) -> None:
        self._last = Observation()
        self._address = address
        self._url = ""
        self._client: RedisClient | None = None
        self._config = True

    async def poll(self) -> Observation:
        """Take a snapshot. While Redis is unavailable, return the last one and since when."""
        away = self._last.away
        try:
            if self._client is None or away is not None:
                await self._connect()
            assert self._client is not None
            found = await take_snapshot(self._client, config=self._config)
        except (RedisAway, SettingsError) as exc:
            where = f"; looked at {RedisUrl(self._url)}" if self._url else ""
            outage = Unavailable(away.since if away else time.time(), f"{exc}{where}")
            self._last = Observation(self._last.found, outage)
        else:
            # A server that refused CONFIG is not asked again, or it would log each refusal.
            self._config = found.redis.fsync is not None
            self._last = Observation(found)
        return self._last

    async def close(self) -> None:
        """Close the connection."""
        if self._client is not None:
            await self._client.close()

    async def _connect(self) -> None:
        url = self._address()
        if url != self._url:
            await self.close()
            self._url, self._client = url, RedisClient(url, name="shoal-top")
        self._config = True
