"""Rates of one process: tokens to spend, requests of a principal, wrong tokens of an address."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from shared.clock import SYSTEM_CLOCK, Clock
from shared.errors import Refused
from shared.log import logger
from shared.metrics import LOGINS_REFUSED
from shared.process.places import client_network
from shared.settings.sections.gateways import TOKEN_CHARS

KNOWN_PRINCIPALS: Final = 1000

WRONG_AT_ONCE: Final = 10
WRONG_PER_S: Final = 1 / 6
NETWORKS: Final = 4096  # that are remembered; the one that was wrong least recently is forgotten
REPORT_EVERY_S: Final = 60.0

log = logger("web")


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


class PrincipalRates:
    """The rate limit of each principal at this process."""

    def __init__(self, *, burst: int, per_s: float, clock: Clock) -> None:
        self._burst = burst
        self._per_s = per_s
        self._clock = clock
        self._buckets: dict[str, TokenBucket] = {}

    def try_acquire(self, principal: str) -> float:
        """Take a token. Return 0.0 for success, else the seconds until the next token."""
        now = self._clock.monotonic()
        if len(self._buckets) >= KNOWN_PRINCIPALS:
            self._buckets.clear()
        new = TokenBucket(self._burst, self._per_s, now)
        return self._buckets.setdefault(principal, new).try_acquire(now)


class LoginBrake:
    """Counts wrong tokens by the address that they come from, and refuses an address with too many.
    A right token of at least TOKEN_CHARS characters, which cannot be guessed, always passes: people
    behind one proxy share an address with whoever guesses. A right one that is shorter is refused
    like a wrong one, so that a guess teaches nothing."""

    def __init__(self, clock: Clock = SYSTEM_CLOCK) -> None:
        self._clock = clock
        self._wrong = OrderedDict[str, TokenBucket]()
        self._refused = 0  # since the last line in the log
        self._report_at = -REPORT_EVERY_S

    def check(self, token: str, host: str, *, right: bool) -> None:
        """Count a token that was shown. Raises Refused when its address has shown too many wrong
        ones."""
        network = client_network(host)
        now = self._clock.monotonic()
        if right and (len(token) >= TOKEN_CHARS or network not in self._wrong):
            return
        bucket = self._wrong.pop(network, None) or TokenBucket(WRONG_AT_ONCE, WRONG_PER_S, now)
        self._wrong[network] = bucket
        if len(self._wrong) > NETWORKS:
            self._wrong.popitem(last=False)
        wait_s = bucket.try_acquire(now)
        if right and not wait_s:
            return
        LOGINS_REFUSED.labels("yes" if wait_s else "no").inc()
        self._refused += 1
        self.report()
        if wait_s:
            raise Refused("rate_limited", "too many wrong tokens came from your address", wait_s)

    def report(self) -> None:
        """Log at most once a minute how many logins were refused. Anonymous clients decide how
        often that happens, so a line for each would let them fill the log."""
        now = self._clock.monotonic()
        if self._refused and now >= self._report_at + REPORT_EVERY_S:
            log.warning("logins refused", count=self._refused, addresses=len(self._wrong))
            self._report_at = now
            self._refused = 0
