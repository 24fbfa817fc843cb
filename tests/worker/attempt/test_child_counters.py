"""What one process counted, counted again in another one."""

from __future__ import annotations

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
from worker.attempt import quarantine


def everything() -> dict[str, dict[tuple[str, ...], float]]:
    """All counters that are not zero."""
    return {name: found for name, one in COUNTERS.items() if any((found := totals(one)).values())}


def test_numbers_and_sums_come_over_as_they_are() -> None:
    """With and without labels. Counted in the same process everything is there twice."""
    MODEL_TOKENS.labels("openai/gpt-5", "input").inc(123)
    STALE_WRITES_REFUSED.inc()
    for seconds in (1.0, 2.0, 4.5):
        ANSWER_SECONDS.labels("done").observe(seconds)
    before, times = everything(), observed(ANSWER_SECONDS)[("done",)]
    assert quarantine.merge_counters(quarantine.encode_counters())
    assert everything() == {
        name: {labels: 2 * value for labels, value in found.items()} for name, found in before.items()
    }
    many, seconds = observed(ANSWER_SECONDS)[("done",)]
    assert many == 2 * times[0]
    assert seconds == pytest.approx(2 * times[1])


def test_one_time_comes_into_its_own_bucket() -> None:
    """Most turns have one of a kind."""
    TOOL_SECONDS.labels("only_here").observe(7.0)
    assert quarantine.merge_counters(quarantine.encode_counters())
    buckets = {
        sample.labels["le"]: sample.value
        for family in TOOL_SECONDS.collect()
        for sample in family.samples
        if sample.name.endswith("_bucket") and sample.labels["tool"] == "only_here"
    }
    assert (buckets["5.0"], buckets["10.0"]) == (0, 2)


@pytest.mark.parametrize("data", [b"", b"\xc1", quarantine.encode_counters()[:-1], b"\x80"])
def test_what_cannot_be_read_counts_nothing(data: bytes) -> None:
    """A child that died while it spoke."""
    before = everything()
    assert not quarantine.merge_counters(data)
    assert everything() == before
