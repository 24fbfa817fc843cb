"""A rate limit of one process."""

from __future__ import annotations


class TokenBucket:
    """A rate limit of one process: `burst` at once, then `per_s` a second."""

    def __init__(self, burst: int, per_s: float, now: float) -> None:
        self._burst = burst
        self._per_s = per_s
        self._left = float(burst)
        self._at = now

    def try_acquire(self, now: float) -> float:
        """Take a token at `now` (monotonic s). Return 0.0, or the seconds until the next token."""
        self._left = min(self._burst, self._left + (now - self._at) * self._per_s)
        self._at = now
        if self._left < 1:
            return (1 - self._left) / self._per_s
        self._left -= 1
        return 0.0
