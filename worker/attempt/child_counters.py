"""The counters of a quarantine child, for its parent, which is the one that is scraped."""

from __future__ import annotations

from typing import Final

import msgspec

from shared.metrics import (
    ANSWER_SECONDS,
    COUNTERS,
    FIRST_TOKEN_SECONDS,
    MODEL_SECONDS,
    TOOL_SECONDS,
    observed,
    totals,
)

LIMIT_BYTES: Final = 256 * 1024

_TIMES: Final = {
    "answer": ANSWER_SECONDS,
    "first_token": FIRST_TOKEN_SECONDS,
    "model": MODEL_SECONDS,
    "tool": TOOL_SECONDS,
}
"""Histograms of what happens inside a turn. The parent measures the turn itself and its wait."""

Labels = tuple[str, ...]


class ChildCounters(msgspec.Struct, frozen=True):
    """Values of counters, and number and sum in seconds of histograms, each by its labels."""

    counts: dict[str, list[tuple[Labels, float]]]
    times: dict[str, list[tuple[Labels, int, float]]]


def encode_counters() -> bytes:
    """Return everything that this process has counted, as bytes."""
    counts = {
        name: [(labels, value) for labels, value in totals(counter).items() if value]
        for name, counter in COUNTERS.items()
    }
    times = {
        name: [(labels, many, seconds) for labels, (many, seconds) in observed(histogram).items()]
        for name, histogram in _TIMES.items()
    }
    return msgspec.msgpack.encode(ChildCounters(counts, times))


def merge_counters(data: bytes) -> bool:
    """Add a child's counters to ours. Return False when they cannot be read.

    Numbers and sums are exact; of several times each is observed as their mean.
    """
    try:
        found = msgspec.msgpack.decode(data, type=ChildCounters)
    except msgspec.DecodeError:
        return False
    for name, counts in found.counts.items():
        for labels, value in counts:
            counter = COUNTERS[name]
            (counter.labels(*labels) if labels else counter).inc(value)
    for name, times in found.times.items():
        for labels, many, seconds in times:
            histogram = _TIMES[name]
            for _ in range(many):
                (histogram.labels(*labels) if labels else histogram).observe(seconds / many)
    return True
