"""What a turn in a process of its own has counted, for the worker that is scraped in its stead."""

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
"""The times of what happens inside a turn. That of the turn itself, and its wait, the worker
measures."""

Labels = tuple[str, ...]


class ChildCounters(msgspec.Struct, frozen=True):
    """Counters with their values, and times with how many there were and their sum in s; each by
    its labels."""

    counts: dict[str, list[tuple[Labels, float]]]
    times: dict[str, list[tuple[Labels, int, float]]]


def encode_counters() -> bytes:
    """All that this process has counted."""
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
    """Count it here, too; whether it could be read. Numbers and sums are exact; of several times
    each is taken for their mean."""
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
