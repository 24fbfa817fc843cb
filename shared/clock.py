"""Local time. Leases never use it: they count by the server's clock (Redis TIME)."""

from __future__ import annotations

import time


class Clock:
    """The machine's clock. Tests hand in one that they move by hand."""

    def monotonic(self) -> float:
        """Seconds that only grow, for measuring how long something took."""
        return time.monotonic()

    def now_ms(self) -> int:
        """Wall-clock milliseconds since 1970, for showing to people."""
        return time.time_ns() // 1_000_000


SYSTEM_CLOCK = Clock()
