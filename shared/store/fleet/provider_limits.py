"""Limits of calls to a provider: rate limits and faults, shared by all workers that use one key."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from typing import Final, Literal

import msgspec

from shared.store import keys
from shared.store.client.redis_client import RedisClient, server_ms

HeldBy = Literal["rate_limit", "overloaded", "requests_per_minute"]
"""Reason why a call is held back: a 429, other faults in a row, or our own limit."""

Ending = Literal["ok", "void", "rate_limit", "overloaded", "timeout", "connection"]
"""Outcome of a call. `void` (cancelled, refused for its content) is not about the provider."""

RouteChange = Literal["closed", "opened"]

_TRYING_S: Final = 0.5  # between two looks at a route that another call is trying


class LimitRules(msgspec.Struct, frozen=True, kw_only=True):
    """Rules of one route. `breaker_after` faults in a row close it for up to `breaker_s`; a call
    without news for `hang_s` counts as dead; `per_minute` None is no limit."""

    breaker_after: int = 5
    breaker_s: float = 30.0
    hang_s: float = 300.0
    per_minute: int | None = None

    @property
    def burst(self) -> int:
        """Calls that may start at the same moment: those of one second."""
        return max(1, (self.per_minute or 0) // 60)

    @property
    def interval_us(self) -> int:
        """Time between two calls, chosen so that burst and flow together never exceed
        `per_minute` in any minute; 0 = no limit."""
        return math.ceil(60_000_000 / (self.per_minute - self.burst + 1)) if self.per_minute else 0


class CallAllowed(msgspec.Struct, frozen=True):
    """The call may be made. `at` is the server's time in ms; unless `watched`, only faults are
    reported."""

    at: int
    watched: bool


class CallHeld(msgspec.Struct, frozen=True):
    """The call may not be made yet. With `placed` it may be made after `wait_s`, unless the route
    closes."""

    wait_s: float
    # The kind of the fault that closed the route.
    reason: HeldBy
    placed: bool = False


class RouteReading(msgspec.Struct, frozen=True):
    """State of a route to a provider. `closed`: calls are refused for another `wait_s`, because
    of `why`; `trying`: it was closed, and a few calls at a time are let through. `faults` counts
    the faults in a row while it is open."""

    route: str = msgspec.field(name="way")
    state: Literal["open", "closed", "trying"]
    why: str = ""
    wait_s: float = 0.0
    faults: int = 0


_CHANGES: Final[dict[bytes, RouteChange]] = {b"closed": "closed", b"opened": "opened"}


class ProviderLimits:
    """A shared breaker and rate limit: call `enter` before each call to a provider, and `report`
    after those that taught something. Raises RedisAway. A 429 closes the route at once, other
    faults do after some in a row. It stays closed as long as the provider asked for, else for 1, 2,
    4, … s with jitter. Then one call tries; each success lets two more through, so that a crowd
    returns over several rounds, and after 32 the route is fully open. A fault meanwhile closes it
    again."""

    def __init__(self, client: RedisClient, *, rng: random.Random | None = None) -> None:
        self._client = client
        self._rng = rng or random.Random()

    async def enter(
        self, name: str, rules: LimitRules, *, patience_s: float = 0.0, placed: bool = False
    ) -> CallAllowed | CallHeld:
        """Decide whether a call may be made now. A caller that can wait (`patience_s`) gets a
        place, and passes `placed` when it asks again."""
        code, number, *kind = await self._client.run(
            "fleet/limit_enter",
            limit=keys.limit(name),
            hang_ms=_ms(rules.hang_s),
            interval_us=rules.interval_us,
            burst=rules.burst,
            patience_us=int(patience_s * 1_000_000),
            placed=int(placed),
        )
        reason: HeldBy = "rate_limit" if kind == [b"rate_limit"] else "overloaded"
        match code:
            case b"go" | b"go_and_report":
                return CallAllowed(number, code == b"go_and_report")
            case b"placed" | b"too_many":
                return CallHeld(number / 1000, "requests_per_minute", placed=code == b"placed")
            case b"closed":
                return CallHeld(number / 1000, reason)
            case _:
                return CallHeld(_TRYING_S * self._rng.uniform(0.5, 1.0), reason)

    async def report(
        self,
        name: str,
        rules: LimitRules,
        entered: CallAllowed,
        ending: Ending,
        *,
        retry_after_s: float | None = None,
    ) -> RouteChange | None:
        """Report how a call ended; return the change for the whole fleet, if any."""
        change = await self._client.run(
            "fleet/limit_report",
            limit=keys.limit(name),
            entered=entered.at,
            ended=ending,
            retry_after_ms="" if retry_after_s is None else _ms(retry_after_s),
            most_faults=rules.breaker_after,
            most_wait_ms=_ms(rules.breaker_s),
            jitter=self._rng.uniform(0.5, 1.0),
            hang_ms=_ms(rules.hang_s),
        )
        return _CHANGES.get(change)


async def read_routes(client: RedisClient, ways: Sequence[str]) -> list[RouteReading]:
    """Read the state of routes in one round trip, without changing any. Raises RedisAway."""
    if not ways:
        return []
    fields = "open_at", "kind", "streak"
    time, *states = await client.pipeline([("TIME",), *(("HMGET", keys.limit(way), *fields) for way in ways)])
    now = server_ms(time)
    return [_parse_route(way, state, now) for way, state in zip(ways, states, strict=True)]


def _parse_route(way: str, state: Sequence[bytes | None], now: int) -> RouteReading:
    open_at, kind, streak = state
    if open_at is None:
        return RouteReading(way, "open", faults=int(streak or 0))
    wait_s = max(0.0, (int(open_at) - now) / 1000)
    return RouteReading(way, "closed" if wait_s else "trying", (kind or b"").decode(), wait_s)


def _ms(seconds: float) -> int:
    return round(seconds * 1000)
