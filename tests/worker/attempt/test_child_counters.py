"""What one process counted, counted again in another one."""

from __future__ import annotations

import msgspec
import pytest

from shared.metrics import (
    ANSWER_SECONDS,
    COUNTERS,
    MODEL_TOKENS,
    STALE_WRITES_REFUSED,
    TOOL_SECONDS,
    observed,
    totals,
)
from worker.attempt.child_counters import ChildCounters, CounterReader, merge_counters


def sent(reader: CounterReader) -> ChildCounters:
    """What the reader found, after its way to another process."""
    return msgspec.msgpack.decode(msgspec.msgpack.encode(reader.read()), type=ChildCounters)


def everything() -> dict[str, dict[tuple[str, ...], float]]:
    """All counters that are not zero."""
    return {name: found for name, one in COUNTERS.items() if any((found := totals(one)).values())}


def test_numbers_and_sums_come_over_as_they_are() -> None:
    """With and without labels: what was counted since the last reading, and nothing else."""
    STALE_WRITES_REFUSED.inc(7)
    reader, start, started = CounterReader(), everything(), observed(ANSWER_SECONDS).get(("done",), (0, 0.0))
    MODEL_TOKENS.labels("openai/gpt-5", "input").inc(123)
    STALE_WRITES_REFUSED.inc()
    for seconds in (1.0, 2.0, 4.5):
        ANSWER_SECONDS.labels("done").observe(seconds)
    merge_counters(sent(reader))
    grown = everything()
    assert grown["stale_writes_refused"][()] == start["stale_writes_refused"][()] + 2
    assert grown["model_tokens"]["openai/gpt-5", "input"] == 246
    many, seconds = observed(ANSWER_SECONDS)[("done",)]
    assert many == started[0] + 6
    assert seconds == pytest.approx(started[1] + 15)


def test_a_reading_begins_where_the_last_one_ended() -> None:
    """A child reports at the end of each turn."""
    reader = CounterReader()
    STALE_WRITES_REFUSED.inc(2)
    assert sent(reader).counts == [("stale_writes_refused", (), 2.0)]
    assert sent(reader) == ChildCounters([], [])
    STALE_WRITES_REFUSED.inc()
    assert sent(reader).counts == [("stale_writes_refused", (), 1.0)]


def test_one_time_comes_into_its_own_bucket() -> None:
    """Most turns have one of a kind."""
    reader = CounterReader()
    TOOL_SECONDS.labels("only_here").observe(7.0)
    merge_counters(sent(reader))
    buckets = {
        sample.labels["le"]: sample.value
        for family in TOOL_SECONDS.collect()
        for sample in family.samples
        if sample.name.endswith("_bucket") and sample.labels["tool"] == "only_here"
    }
    assert (buckets["5.0"], buckets["10.0"]) == (0, 2)
