"""Time of the machine, and of the fleet. Leases never use either: they count by the server's clock
(Redis TIME) inside the scripts."""

from __future__ import annotations

import os
import time


class Clock:
    """The machine's clock. Tests hand in one that they move by hand."""

    _ahead_ms: int | None = None

    @property
    def follows(self) -> bool:
        """True once the time of day is the server's."""
        return self._ahead_ms is not None

    def monotonic(self) -> float:
        """Seconds that only grow, for measuring how long something took."""
        return time.monotonic()

    def now_ms(self) -> int:
        """Milliseconds since 1970, for people and for what they plan: by the machine's own clock
        until `follow` is called, by the server's from then on."""
        if self._ahead_ms is None:
            return time.time_ns() // 1_000_000
        # Counted on by the monotonic clock: a step of the machine's time of day changes nothing.
        return int(self.monotonic() * 1000) + self._ahead_ms

    def follow(self, server_ms: int) -> None:
        """Take the time of day from the server, which has just answered `server_ms`."""
        self._ahead_ms = server_ms - int(self.monotonic() * 1000)


SYSTEM_CLOCK = Clock()
"""The clock of this process. A worker lets it follow the server, so that all workers of a fleet
agree on the time, whatever their machines say. A gateway does not: platforms sign their requests
with the real time, and the machine's own clock is the best guess at that."""


def machine_timezone() -> str:
    """Return the IANA name of the machine's time zone, `""` where it cannot be found."""
    return os.path.realpath("/etc/localtime").partition("zoneinfo/")[2]
