"""How the queues stand, as gauges: every process exports the same reading, so that they exist with no worker at all."""

from __future__ import annotations

from typing import Final

from shared.clock import SYSTEM_CLOCK, Clock
from shared.errors import RedisAway
from shared.metrics import QUEUE_DUE, QUEUE_OLDEST_DUE_SECONDS, QUEUE_RUNNING
from shared.store.client import RedisClient
from shared.store.presence import read_queue

QUEUES: Final = ("turns", "jobs")
CACHED_S: Final = 1.0


class Readings:
    """Fills the `shoal_queue_*` gauges from Redis when asked, at most once a second."""

    def __init__(self, client: RedisClient, *, clock: Clock = SYSTEM_CLOCK) -> None:
        self._client = client
        self._clock = clock
        self._read_at = float("-inf")

    async def refresh(self) -> None:
        """Read again if the last reading is older than a second. While Redis is away the last reading stands."""
        now = self._clock.monotonic()
        if now - self._read_at < CACHED_S:
            return
        self._read_at = now
        for name in QUEUES:
            try:
                reading = await read_queue(self._client, name)
            except RedisAway:
                return
            QUEUE_DUE.labels(name).set(reading.due)
            QUEUE_RUNNING.labels(name).set(reading.running)
            QUEUE_OLDEST_DUE_SECONDS.labels(name).set(reading.oldest_due_s)
