"""A chat that this process delivers, and for how long that is safe."""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Iterator
from typing import Final

from shared.clock import SYSTEM_CLOCK, Clock
from shared.store.delivery.deliveries import LeasedChat

SAFE: Final = 0.75
"""Past this part of the lease, counted from when its last good renewal was sent, nothing more is
done."""


class ChatLease:
    """`delivery` is the lease. `news` is set when the chat is to be looked at again. `in_doubt`: a
    post was marked as being sent, and it is not known yet what became of it. `tells`: Redis is
    being told that, and takes it from whoever has the lease, however late. `over`: nothing more is
    done for the chat here."""

    def __init__(self, chat: LeasedChat, *, acquired_at: float, lease_s: float, clock: Clock = SYSTEM_CLOCK) -> None:
        self.chat = chat
        self.news = asyncio.Event()
        self.in_doubt = False
        self.reporting = False
        self.ended = False
        self._clock = clock
        self._lease_s = lease_s
        self._renewed_at = acquired_at

    @property
    def session(self) -> str:
        return self.chat.session

    @property
    def safe_s(self) -> float:
        """How long it is still safe to act for the chat, in seconds; 0 = not any more."""
        return max(0.0, self._renewed_at + SAFE * self._lease_s - self._clock.monotonic())

    @contextlib.contextmanager
    def while_reporting(self) -> Iterator[None]:
        """Within this the fence does not end the service of the chat."""
        self.reporting = True
        try:
            yield
        finally:
            self.reporting = False

    def renewed(self, at: float) -> None:
        """A call that holds the lease was made at `at` (`Clock.monotonic`), and was answered
        well."""
        self._renewed_at = max(self._renewed_at, at)

    def lose(self) -> None:
        """It is another process's now."""
        self._renewed_at = -math.inf
