"""Gauges of Redis, the queues and the fleet: each process exports them, worker or not."""

from __future__ import annotations

import math
from typing import Final

from shared import metrics
from shared.clock import SYSTEM_CLOCK, Clock
from shared.errors import RedisAway
from shared.store import keys
from shared.store.client.redis_client import RedisClient
from shared.store.delivery.outbox import read_outboxes
from shared.store.fleet.presence import list_processes, read_queue
from shared.store.fleet.redis_server import read_fsync, read_health

QUEUES: Final = ("turns", keys.BACKGROUND, "jobs")
KINDS: Final = ("gateway", "worker")
CACHED_S: Final = 1.0
FSYNC_EVERY_S: Final = 60.0
LOSS_WINDOW_S: Final = {"always": 0.0, "everysec": 1.0, "no": math.inf}
"""Seconds of confirmed writes that a server may lose, by its `appendfsync`."""


class FleetGauges:
    """Fills the gauges about Redis on demand, at most once a second."""

    def __init__(self, client: RedisClient, *, clock: Clock = SYSTEM_CLOCK) -> None:
        self._client = client
        self._clock = clock
        self._read_at = self._fsync_at = -math.inf
        self._fsync: str | None = ""  # None: it is not told

    async def refresh(self) -> None:
        """Read again if the last reading is older than a second. While Redis is unavailable the
        last reading stays, and `shoal_redis_up` is 0."""
        now = self._clock.monotonic()
        if now - self._read_at < CACHED_S:
            return
        self._read_at = now
        try:
            await self._fill_gauges()
            metrics.REDIS_UP.set(1)
        except RedisAway:
            metrics.REDIS_UP.set(0)

    async def _fill_gauges(self) -> None:
        for name in QUEUES:
            reading = await read_queue(self._client, name)
            metrics.QUEUE_DUE.labels(name).set(reading.due)
            metrics.QUEUE_RUNNING.labels(name).set(reading.running)
            metrics.QUEUE_OLDEST_DUE_SECONDS.labels(name).set(reading.oldest_due_s)
        for outbox in await read_outboxes(self._client):
            metrics.OUTBOX_WAITING.labels(outbox.channel).set(outbox.waiting)
            metrics.OUTBOX_OLDEST_SECONDS.labels(outbox.channel).set(outbox.oldest_s)
        alive = [one.kind for one in await list_processes(self._client)]
        for kind in KINDS:
            metrics.PROCESSES.labels(kind).set(alive.count(kind))
        pulse = await read_health(self._client)
        metrics.REDIS_MEMORY_BYTES.set(_nan_if_unknown(pulse.used_bytes))
        metrics.REDIS_MEMORY_LIMIT_BYTES.set(_nan_if_unknown(pulse.limit_bytes))
        metrics.REDIS_WRITES_OK.set(_nan_if_unknown(pulse.writes_ok))
        metrics.REDIS_CLOCK_AHEAD_SECONDS.set(pulse.clock_ahead_s)
        window_s = math.inf if pulse.append_only is False else LOSS_WINDOW_S.get(await self._fsync_now() or "")
        metrics.REDIS_LOSS_WINDOW_SECONDS.set(_nan_if_unknown(window_s))

    async def _fsync_now(self) -> str | None:
        """Read `appendfsync` once a minute, and never again when the server did not answer."""
        now = self._clock.monotonic()
        if self._fsync is not None and now - self._fsync_at >= FSYNC_EVERY_S:
            self._fsync, self._fsync_at = await read_fsync(self._client), now
        return self._fsync


def _nan_if_unknown(value: float | None) -> float:
    return math.nan if value is None else value
