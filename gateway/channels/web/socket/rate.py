"""How fast one socket may talk."""

from __future__ import annotations


class TokenBucket:
    """`burst` at once, then `per_s` a second. It lives in one process: more sockets have more
    buckets."""

    def __init__(self, *, burst: int, per_s: float, now: float) -> None:
        self._burst = burst
        self._per_s = per_s
        self._left = float(burst)
        self._at = now

    def try_acquire(self, now: float) -> float:
        """Take one at `now` (monotonic seconds). 0.0 when there was one, else the seconds until
        there will be."""
        self._left = min(self._burst, self._left + (now - self._at) * self._per_s)
        self._at = now
        if self._left < 1:
            return (1 - self._left) / self._per_s
        self._left -= 1
        return 0.0
