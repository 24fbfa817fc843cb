"""The presence record of this process, with statistics computed from its own metrics."""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import socket
from collections import deque
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from msgspec.structs import replace

from shared import metrics
from shared.clock import SYSTEM_CLOCK, Clock
from shared.errors import RedisAway, Refused
from shared.metrics import TURN_BUCKETS_S, bucket_counts, totals
from shared.store.client.redis_client import RedisClient
from shared.store.fleet.presence import (
    PRESENCE_EVERY_S,
    Presence,
    ProcessStats,
    announce,
    remove_presence,
)
from shared.version import VERSION

FAREWELL_S: Final = 1.0
WINDOW_READINGS: Final = round(60 / PRESENCE_EVERY_S)
RATE_READINGS: Final = round(10 / PRESENCE_EVERY_S)
ENDED: Final = {"done", "stopped", "dead", "quarantine_ended"}  # the turn is not run again
_TIMES: Final = {
    "first_token": metrics.FIRST_TOKEN_SECONDS,
    "turn": metrics.TURN_SECONDS,
    "answer": metrics.ANSWER_SECONDS,
    "lag": metrics.EVENT_LOOP_LAG_SECONDS,
}

Buckets = dict[float, int]


class _Reading(NamedTuple):
    """The metrics at one moment, counted since the process began, by their names in
    ProcessStats."""

    at: float
    counts: dict[str, float]
    times: dict[str, Buckets]


class StatsReader:
    """Computes the statistics of this process. Create it at start-up and read it every 5 s."""

    def __init__(self, clock: Clock = SYSTEM_CLOCK) -> None:
        self._clock = clock
        self._readings = deque([_read_metrics(clock)], maxlen=WINDOW_READINGS)

    def read(self) -> ProcessStats:
        """Return the statistics now: rates over the last readings, durations over a minute."""
        now = _read_metrics(self._clock)
        last = self._readings[-1].times
        oldest = self._readings[0].times
        # Rates look back 10 s, durations a minute.
        before = self._readings[-min(RATE_READINGS, len(self._readings))]
        self._readings.append(now)
        passed_s = max(0.001, now.at - before.at)
        found: dict[str, Any] = {
            f"{name}_per_s": round((count - before.counts[name]) / passed_s, 3) for name, count in now.counts.items()
        }
        found |= {name: _since(oldest[name], times) for name, times in now.times.items()}
        del found["lag"]
        lag_s = _worst(last["lag"], now.times["lag"])
        return ProcessStats(memory_bytes=metrics.memory_bytes(), lag_s=lag_s, **found)


class Announcer:
    """Writes this process's presence record every 5 s, by which operators see that it lives. While
    Redis is unavailable the record expires; it comes back with Redis. `state` returns the fields
    that change, `fixed` are others."""

    def __init__(
        self,
        client: RedisClient,
        kind: str,
        state: Callable[[], dict[str, Any]],
        *,
        name: str = "",
        **fixed: Any,
    ) -> None:
        host = socket.gethostname()
        pid = os.getpid()
        self._record = Presence(
            kind=kind,
            name=name or f"{host}-{pid}",
            host=host,
            pid=pid,
            started_at=SYSTEM_CLOCK.now_ms(),
            version=VERSION,
            **fixed,
        )
        self._client = client
        self._state = state
        self._stats = StatsReader()
        self.announced = False
        """Whether the record was written once: operators may see this process."""

    async def announce(self) -> None:
        """Write the record, unless Redis is unavailable."""
        record = replace(self._record, stats=self._stats.read(), **self._state())
        with contextlib.suppress(RedisAway, Refused):
            await announce(self._client, record)
            self.announced = True

    async def run(self) -> None:
        """Write the record until cancelled."""
        while True:
            await self.announce()
            await asyncio.sleep(PRESENCE_EVERY_S)

    async def farewell(self) -> None:
        """Remove the record, if Redis answers within a second."""
        with contextlib.suppress(RedisAway, TimeoutError):
            async with asyncio.timeout(FAREWELL_S):
                await remove_presence(self._client, self._record)


def _read_metrics(clock: Clock) -> _Reading:
    outcomes = totals(metrics.TURNS)
    counts = {
        "accepted": sum(totals(metrics.MESSAGES_ACCEPTED).values()),
        "refused": sum(totals(metrics.MESSAGES_REFUSED).values()),
        "ended": sum(count for (outcome,), count in outcomes.items() if outcome in ENDED),
        "failed": outcomes.get(("dead",), 0.0),
    }
    times = {name: bucket_counts(one) for name, one in _TIMES.items()}
    return _Reading(clock.monotonic(), counts, times)


def _since(before: Buckets, now: Buckets) -> tuple[int, ...]:
    """Count new observations in each bucket of TURN_BUCKETS_S and above; () when there are none."""
    bounds = (*TURN_BUCKETS_S, math.inf)
    counts = tuple(now.get(bound, 0) - before.get(bound, 0) for bound in bounds)
    return counts if any(counts) else ()


def _worst(before: Buckets, now: Buckets) -> float:
    """Return the upper bound of the highest bucket with new observations; not infinity."""
    came = [bound for bound, count in now.items() if count > before.get(bound, 0)]
    highest = max(came, default=0.0)
    return highest if math.isfinite(highest) else max(filter(math.isfinite, now))
