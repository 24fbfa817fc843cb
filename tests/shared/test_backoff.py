"""Waits between tries."""

from __future__ import annotations

import random
from itertools import islice

from shared.backoff import Backoff


class Longest(random.Random):
    """Draws the upper limit."""

    def uniform(self, a: float, b: float) -> float:
        assert a == 0
        return b


def test_the_ceiling_doubles_up_to_the_cap() -> None:
    assert list(islice(Backoff(1, 5, rng=Longest()), 5)) == [1, 2, 4, 5, 5]


def test_a_success_makes_the_waits_short_again() -> None:
    backoff = Backoff(1, 5, rng=Longest())
    assert list(islice(backoff, 3)) == [1, 2, 4]
    backoff.reset()
    assert next(backoff) == 1


def test_waits_are_spread_below_their_ceiling() -> None:
    """A crowd that lost the same server must not come back at one moment."""
    first = [next(Backoff(1, 5)) for _ in range(100)]
    assert len(set(first)) > 90
    assert all(0 <= wait_s <= 1 for wait_s in first)
