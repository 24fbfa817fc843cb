"""Metrics of a process, and the series that they are made of."""

from __future__ import annotations

import pytest

from shared.metrics import TURNS, totals


def test_a_series_is_the_same_whenever_it_is_asked_for() -> None:
    """What is counted at one place and at another adds up."""
    before = totals(TURNS).get(("tried",), 0)
    assert TURNS.labels("tried") is TURNS.labels("tried")
    TURNS.labels("tried").inc()
    TURNS.labels("tried").inc()
    TURNS.labels(outcome="tried").inc()
    assert totals(TURNS)[("tried",)] == before + 3


def test_labels_that_a_metric_does_not_have_are_refused_each_time() -> None:
    """A slip is never kept."""
    for _ in range(2):
        with pytest.raises(ValueError, match="Incorrect label count"):
            TURNS.labels("one", "too many")
