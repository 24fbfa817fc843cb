"""Service levels of the fleet in a few numbers, aggregated from the presence records of its
processes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from shared.metrics import TURN_BUCKETS_S
from shared.store.fleet.presence import Presence

_BOUNDS: Final = (0.0, *map(float, TURN_BUCKETS_S), math.inf)


class DurationQuantiles(msgspec.Struct, frozen=True):
    """Quantiles of durations in the last minute, out of `count`.

    Estimated from buckets, as in the dashboards; above the highest bound it is that bound. None
    when nothing was measured.
    """

    count: int = 0
    p50_s: float | None = None
    p95_s: float | None = None


class FleetAggregates(msgspec.Struct, frozen=True, kw_only=True):
    """Rates of the last 10 s and durations. `first_token` is measured from the claim of a turn to
    its first text, `turn` to its end, `answer` from a message's acceptance to the end of its
    turn."""

    accepted_per_s: float
    refused_per_s: float
    ended_per_s: float
    failed_per_s: float
    first_token: DurationQuantiles
    turn: DurationQuantiles
    answer: DurationQuantiles


def aggregate(processes: Iterable[Presence]) -> FleetAggregates:
    """Aggregate all processes."""
    stats = [one.stats for one in processes if one.stats is not None]
    return FleetAggregates(
        accepted_per_s=_rate(one.accepted_per_s for one in stats),
        refused_per_s=_rate(one.refused_per_s for one in stats),
        ended_per_s=_rate(one.ended_per_s for one in stats),
        failed_per_s=_rate(one.failed_per_s for one in stats),
        first_token=_times(one.first_token for one in stats),
        turn=_times(one.turn for one in stats),
        answer=_times(one.answer for one in stats),
    )


def _rate(each: Iterable[float]) -> float:
    return round(max(0.0, sum(each)), 2)


def _times(each: Iterable[Sequence[int]]) -> DurationQuantiles:
    """Sum the buckets. A process of a version with other buckets is left out."""
    counts = [sum(column) for column in zip(*(one for one in each if len(one) == len(_BOUNDS) - 1), strict=True)]
    total = sum(counts)
    if not total:
        return DurationQuantiles()
    return DurationQuantiles(total, _quantile(counts, 0.5 * total), _quantile(counts, 0.95 * total))


def _quantile(counts: Sequence[int], rank: float) -> float:
    """Interpolate the `rank`th value, assuming an even spread within its bucket."""
    below = 0
    for at, count in enumerate(counts):
        if count and below + count >= rank:
            low, high = _BOUNDS[at], _BOUNDS[at + 1]
            return low if math.isinf(high) else round(low + (high - low) * (rank - below) / count, 3)
        below += count
    return _BOUNDS[-2]
