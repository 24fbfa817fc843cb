"""Statistics of this process, computed from its own metrics for its presence record."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from typing import Final, NamedTuple

from shared.clock import SYSTEM_CLOCK, Clock
from shared.metrics import (
    ANSWER_SECONDS,
    EVENT_LOOP_LAG_SECONDS,
    FIRST_TOKEN_SECONDS,
    MESSAGES_ACCEPTED,
    MESSAGES_REFUSED,
    TURN_BUCKETS_S,
    TURN_SECONDS,
    TURNS,
    bucket_counts,
    memory_bytes,
    totals,
)
from shared.store.fleet.presence import PRESENCE_EVERY_S, ProcessStats

WINDOW_READINGS: Final = round(60 / PRESENCE_EVERY_S)
RATE_READINGS: Final = round(10 / PRESENCE_EVERY_S)
ENDED: Final = frozenset({"done", "stopped", "dead", "quarantine_ended"})
"""Outcomes after which a turn is not run again."""

Buckets = Mapping[float, int]


class _Reading(NamedTuple):
    """The metrics at one moment, counted since the process began."""

    at: float
    accepted: float
    refused: float
    ended: float
    failed: float
    first_token: Buckets
    turn: Buckets
    answer: Buckets
    lag: Buckets


class StatsReader:
    """Computes the statistics of this process. Create it at start-up and read it every 5 s."""

    def __init__(self, clock: Clock = SYSTEM_CLOCK) -> None:
        self._clock = clock
        self._readings = deque([_read_metrics(clock)], maxlen=WINDOW_READINGS)

    def read(self) -> ProcessStats:
        """Return the statistics now: rates over the last two readings, durations over the last
        minute."""
        now = _read_metrics(self._clock)
        last, oldest = self._readings[-1], self._readings[0]
        # Rates look back 10 s, durations a minute.
        before = self._readings[-min(RATE_READINGS, len(self._readings))]
        self._readings.append(now)
        passed_s = max(0.001, now.at - before.at)
        return ProcessStats(
            memory_bytes=memory_bytes(),
            lag_s=_worst(last.lag, now.lag),
            accepted_per_s=round((now.accepted - before.accepted) / passed_s, 3),
            refused_per_s=round((now.refused - before.refused) / passed_s, 3),
            ended_per_s=round((now.ended - before.ended) / passed_s, 3),
            failed_per_s=round((now.failed - before.failed) / passed_s, 3),
            first_token=_since(oldest.first_token, now.first_token),
            turn=_since(oldest.turn, now.turn),
            answer=_since(oldest.answer, now.answer),
        )


def _read_metrics(clock: Clock) -> _Reading:
    outcomes = totals(TURNS)
    return _Reading(
        at=clock.monotonic(),
        accepted=sum(totals(MESSAGES_ACCEPTED).values()),
        refused=sum(totals(MESSAGES_REFUSED).values()),
        ended=sum(count for (outcome,), count in outcomes.items() if outcome in ENDED),
        failed=outcomes.get(("dead",), 0.0),
        first_token=bucket_counts(FIRST_TOKEN_SECONDS),
        turn=bucket_counts(TURN_SECONDS),
        answer=bucket_counts(ANSWER_SECONDS),
        lag=bucket_counts(EVENT_LOOP_LAG_SECONDS),
    )


def _since(before: Buckets, now: Buckets) -> tuple[int, ...]:
    """Count the new observations in each bucket of TURN_BUCKETS_S and above them; () when there
    are none."""
    counts = tuple(now.get(bound, 0) - before.get(bound, 0) for bound in (*TURN_BUCKETS_S, math.inf))
    return counts if any(counts) else ()


def _worst(before: Buckets, now: Buckets) -> float:
    """Return the upper bound of the highest bucket with a new observation; above all of them the
    last bound."""
    came = [bound for bound, count in now.items() if count > before.get(bound, 0)]
    highest = max(came, default=0.0)
    return highest if math.isfinite(highest) else max(bound for bound in now if math.isfinite(bound))
