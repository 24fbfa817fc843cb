"""Waiting times between retries."""

from __future__ import annotations

import asyncio
import random
from typing import Final

RECONNECT_FIRST_S: Final = 0.05
RECONNECT_CAP_S: Final = 1.5  # ceilings of the first and the longest wait for Redis


class Backoff:
    """Waits in seconds, each drawn evenly from 0 to a ceiling that doubles from `first_s` up to
    `cap_s`. An endless iterator; by default its waits are those between two tries to reach Redis. A
    crowd that lost the same server comes back spread out instead of in waves. Source: M. Brooker,
    "Exponential Backoff And Jitter", AWS Architecture Blog, 2015."""

    __slots__ = ("_cap_s", "_ceiling_s", "_draw", "_first_s")

    def __init__(
        self,
        first_s: float = RECONNECT_FIRST_S,
        cap_s: float = RECONNECT_CAP_S,
        *,
        rng: random.Random | None = None,
    ) -> None:
        self._first_s = self._ceiling_s = first_s
        self._cap_s = cap_s
        self._draw = (rng or random).uniform

    def __iter__(self) -> Backoff:
        return self

    def __next__(self) -> float:
        wait_s = self._draw(0, self._ceiling_s)
        self._ceiling_s = min(self._cap_s, self._ceiling_s * 2)
        return wait_s

    def reset(self) -> None:
        """Begin with short waits again: a try has succeeded."""
        self._ceiling_s = self._first_s

    async def sleep(self) -> None:
        """Sleep for the next wait."""
        await asyncio.sleep(next(self))
