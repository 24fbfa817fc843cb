"""How Redis, the queues and the fleet stand, as gauges: every process exports the same reading, so that they exist with
no worker at all."""

from __future__ import annotations

import math
from typing import Final

from shared.clock import SYSTEM_CLOCK, Clock
from shared.errors import RedisAway
from shared.metrics import (
    PROCESSES,
    QUEUE_DUE,
    QUEUE_OLDEST_DUE_SECONDS,
    QUEUE_RUNNING,
    REDIS_CLOCK_AHEAD_SECONDS,
    REDIS_MEMORY_BYTES,
    REDIS_MEMORY_LIMIT_BYTES,
    REDIS_UP,
    REDIS_WRITES_OK,
)
from shared.store import keys
from shared.store.client import RedisClient
from shared.store.presence import present, read_queue
from shared.store.server import read_pulse

QUEUES: Final = ("turns", keys.BACKGROUND, "jobs")
KINDS: Final = ("gateway", "worker")
CACHED_S: Final = 1.0


class Readings:
    """Fills the gauges of what is in Redis when asked, at most once a second."""

    def __init__(self, client: RedisClient, *, clock: Clock = SYSTEM_CLOCK) -> None:
        self._client = client
        self._clock = clock
        self._read_at = float("-inf")

    async def refresh(self) -> None:
        """Read again if the last reading is older than a second. While Redis is away the last reading stands, and
        `shoal_redis_up` is 0."""
        now = self._clock.monotonic()
        if now - self._read_at < CACHED_S:
            return
        self._read_at = now
        try:
            await self._read()
        except RedisAway:
            REDIS_UP.set(0)
        else:
            REDIS_UP.set(1)

    async def _read(self) -> None:
        for name in QUEUES:
            reading = await read_queue(self._client, name)
            QUEUE_DUE.labels(name).set(reading.due)
            QUEUE_RUNNING.labels(name).set(reading.running)
            QUEUE_OLDEST_DUE_SECONDS.labels(name).set(reading.oldest_due_s)
        alive = [one.kind for one in await present(self._client)]
        for kind in KINDS:
            PROCESSES.labels(kind).set(alive.count(kind))
        pulse = await read_pulse(self._client)
        REDIS_MEMORY_BYTES.set(_told(pulse.used_bytes))
        REDIS_MEMORY_LIMIT_BYTES.set(_told(pulse.limit_bytes))
        REDIS_WRITES_OK.set(_told(pulse.writes_ok))
        REDIS_CLOCK_AHEAD_SECONDS.set(pulse.clock_ahead_s)


def _told(value: float | None) -> float:
    return math.nan if value is None else value
