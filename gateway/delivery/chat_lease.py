"""A chat that this process delivers, and for how long that is safe."""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Iterator

from shared.clock import SYSTEM_CLOCK, Clock
from shared.lease.timing import safe_period_s
from shared.store.delivery.deliveries import LeasedChat


class ChatLease:
    """A lease on one chat, as this process sees it.

    `news` is set when the chat's state is to be read again. `in_doubt`: a post was announced and
    its outcome is not known yet. `reporting`: the outcome is being written to Redis; that write is
    accepted even after the lease has expired. `ended`: this process does nothing more for the chat.
    """

    def __init__(self, chat: LeasedChat, *, acquired_at: float, lease_s: float, clock: Clock = SYSTEM_CLOCK) -> None:
        self.chat = chat
        self.news = asyncio.Event()
        self.in_doubt = False
        self.reporting = False
        self.ended = False
        self._clock = clock
        self._safe_period_s = safe_period_s(lease_s)
        self._renewed_at = acquired_at

    @property
    def session(self) -> str:
        return self.chat.session

    @property
    def safe_s(self) -> float:
        """The seconds for which it is safe to act for the chat; 0 = not any more."""
        return max(0.0, self._renewed_at + self._safe_period_s - self._clock.monotonic())

    @contextlib.contextmanager
    def while_reporting(self) -> Iterator[None]:
        """Keep the fence from cancelling the delivery: an outcome that is lost makes another
        gateway send the post again."""
        self.reporting = True
        try:
            yield
        finally:
            self.reporting = False

    def renewed(self, at: float) -> None:
        """Extend the lease after a successful call. `at` is when the call was made
        (`Clock.monotonic`)."""
        # A late answer of an older call must not shorten it.
        self._renewed_at = max(self._renewed_at, at)

    def lose(self) -> None:
        """Give the lease up: another process has it."""
        self._renewed_at = -math.inf
