"""Local time. Leases never use it: they count by the server's clock (Redis TIME)."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Two readings a caller may need; tests hand in one that they move by hand."""

    def monotonic(self) -> float:
        """Seconds that only grow, for measuring how long something took."""
        ...

    def now_ms(self) -> int:
        """Wall-clock milliseconds since 1970, for showing to people."""
        ...


class SystemClock:
    """The machine's clock."""

    def monotonic(self) -> float:
        return time.monotonic()

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000


SYSTEM_CLOCK = SystemClock()
