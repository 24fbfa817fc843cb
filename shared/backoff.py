"""Waiting times between tries."""

from __future__ import annotations

import random
from collections.abc import Iterator


def full_jitter(first_s: float, cap_s: float, *, rng: random.Random | None = None) -> Iterator[float]:
    """Yield waits in seconds, each drawn evenly from 0 to a ceiling that doubles from `first_s` up
    to `cap_s`.

    A crowd that lost the same server comes back spread out instead of in waves.
    Source: M. Brooker, "Exponential Backoff And Jitter", AWS Architecture Blog, 2015.
    """
    draw = (rng or random).uniform
    ceiling = first_s
    while True:
        yield draw(0, ceiling)
        ceiling = min(cap_s, ceiling * 2)
