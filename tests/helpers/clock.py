"""A clock that a test moves."""

from __future__ import annotations

from shared.clock import Clock


class HandClock(Clock):
    """Stands still until `at` (seconds) is changed."""

    def __init__(self, at: float = 1000.0) -> None:
        self.at = at

    def monotonic(self) -> float:
        return self.at

    def now_ms(self) -> int:
        return int(self.at * 1000)
