"""Counters of a quarantine's child, added to those of its worker: nothing scrapes a child."""

from __future__ import annotations

from typing import Final

import msgspec

from shared import metrics

_TIMES: Final = {
    "answer": metrics.ANSWER_SECONDS,
    "first_token": metrics.FIRST_TOKEN_SECONDS,
    "model": metrics.MODEL_SECONDS,
    "model_first_token": metrics.MODEL_FIRST_TOKEN_SECONDS,
    "tool": metrics.TOOL_SECONDS,
}
"""Histograms of what happens inside a turn. The parent measures the turn itself and its wait."""

Labels = tuple[str, ...]


class ChildCounters(msgspec.Struct, frozen=True):
    """Values of counters, and number and sum in seconds of histograms, each by name and labels."""

    counts: list[tuple[str, Labels, float]]
    times: list[tuple[str, Labels, int, float]]


class CounterReader:
    """Reads what this process has counted since the last reading."""

    def __init__(self) -> None:
        self._counts: dict[tuple[str, Labels], float] = {}
        self._times: dict[tuple[str, Labels], tuple[int, float]] = {}
        self.read()

    def read(self) -> ChildCounters:
        """Return what was counted since the last call."""
        last_counts = self._counts
        last_times = self._times
        self._counts = {
            (name, labels): value
            for name, counter in metrics.COUNTERS.items()
            for labels, value in metrics.totals(counter).items()
        }
        self._times = {
            (name, labels): found
            for name, histogram in _TIMES.items()
            for labels, found in metrics.observed(histogram).items()
        }
        counts = [(*key, value - last_counts.get(key, 0.0)) for key, value in self._counts.items()]
        times = []
        for key, (many, seconds) in self._times.items():
            before, before_s = last_times.get(key, (0, 0.0))
            times.append((*key, many - before, seconds - before_s))
        return ChildCounters([one for one in counts if one[2]], [one for one in times if one[2]])


def merge_counters(found: ChildCounters) -> None:
    """Add a child's counters to ours. Numbers and sums are exact; of several times each is observed
    as their mean."""
    for name, labels, value in found.counts:
        counter = metrics.COUNTERS[name]
        (counter.labels(*labels) if labels else counter).inc(value)
    for name, labels, many, seconds in found.times:
        histogram = _TIMES[name]
        for _ in range(many):
            (histogram.labels(*labels) if labels else histogram).observe(seconds / many)
