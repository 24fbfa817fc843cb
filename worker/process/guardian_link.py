"""The worker's end of the link to its guardian."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Final

TICKS_PER_LEASE: Final = 10


class GuardianLink:
    """Tells the guardian that the event loop runs; learns when it renewed in our place."""

    def __init__(self, link: socket.socket, *, lease_s: float) -> None:
        link.setblocking(False)
        self._link = link
        self._every_s = lease_s / TICKS_PER_LEASE
        self._renewed_at = 0.0
        self._guardian_gone = False

    def renewed_at(self) -> float:
        """Return the monotonic time at which the guardian last renewed our leases; 0 if never.

        Reads what the guardian has sent by now. After a pause of the event loop that is more than
        the last tick has seen.
        """
        try:
            while data := self._link.recv(4096):
                for line in data.splitlines():
                    word, _, value = line.partition(b" ")
                    if word == b"renewed":
                        self._renewed_at = float(value)
            # An empty read is the end of the stream.
            self._guardian_gone = True
        except BlockingIOError:
            pass
        except OSError:
            self._guardian_gone = True
        return self._renewed_at

    async def run(self, orphaned: Callable[[], None]) -> None:
        """Tick until cancelled. Once the guardian is dead, call `orphaned` and return."""
        while True:
            try:
                self._link.send(b"tick\n")
            except BlockingIOError:
                pass  # a stopped guardian does not read; it will find enough ticks later
            except OSError:
                self._guardian_gone = True
            self.renewed_at()
            if self._guardian_gone:
                orphaned()
                return
            await asyncio.sleep(self._every_s)
