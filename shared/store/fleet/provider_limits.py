"""Limits of calls to a provider: rate limits and faults, shared by all workers that use one key."""

from __future__ import annotations

import hashlib
import math
import random
from collections.abc import Sequence
from typing import Final, Literal

import msgspec

from shared.store import keys
from shared.store.client.redis_client import RedisClient, server_ms

HeldBy = Literal["rate_limit", "overloaded", "requests_per_minute"]
"""Reason why a call is held back: a 429, other faults in a row, or our own limit."""

Ending = Literal["ok", "void", "refused", "rate_limit", "overloaded", "timeout", "connection"]
"""Outcome of a call. `void` (cancelled, refused for its content) is not about the provider, nor is
`refused`: it does not accept the key."""

RouteNews = Literal["closed", "opened", "alone"]
"""What a report changed for the fleet: the route closed, or it is open again. `alone`: nothing, for
the caller met a fault while others are served, or nobody else is there."""

PROBE_S: Final = 5.0
"""Time between two calls that try a provider which failed."""

_TRYING_S: Final = 0.5  # between two looks at a route that another call is trying


class LimitRules(msgspec.Struct, frozen=True, kw_only=True):
    """Rules of one route. `breaker_after` faults in a row close it, of which one session counts for
    at most half; a 429 that names no time does for up to `breaker_s`. A call without news for
    `hang_s` counts as dead; `per_minute` None is no limit."""

    breaker_after: int = 5
    breaker_s: float = 30.0
    hang_s: float = 300.0
    per_minute: int | None = None

    @property
    def probe_s(self) -> float:
        """Time between two calls that try the route while it is closed because of faults."""
        return min(PROBE_S, self.breaker_s)

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
    """The call may not be made yet; ask again after `wait_s`. With `placed` it may be made then,
    unless the route closes. `next_s`: until another call may try the route, if this one does not
    want to wait for the one that tries it now. `crowd` counts calls held since the route closed."""

    wait_s: float
    # The kind of the fault that closed the route.
    reason: HeldBy
    placed: bool = False
    next_s: float = 0.0
    crowd: int = 0


class RouteReading(msgspec.Struct, frozen=True):
    """State of a route to a provider. `closed`: calls are refused for another `wait_s`, because
    of `why`; `trying`: it was closed, and a few calls at a time are let through. `faults` counts
    the faults in a row while it is open; `refused`: its key was not accepted the last time."""

    route: str = msgspec.field(name="way")
    state: Literal["open", "closed", "trying"]
    why: str = ""
    wait_s: float = 0.0
    faults: int = 0
    refused: bool = False


_NEWS: Final[dict[bytes, RouteNews]] = {b"closed": "closed", b"opened": "opened", b"alone": "alone"}


class ProviderLimits:
    """A shared breaker and rate limit: call `enter` before each call to a provider, and `report`
    after those that taught something. Raises RedisAway.

    The breaker counts sessions: faults close the route when several sessions meet them and nobody
    has a success in between. Then one call tries every PROBE_S, not one of the session that failed
    last while others wait, and a success of anyone opens the route. A 429 closes it at once if it
    says for how long, or if a second session meets it: for as long as the provider asked for, else
    for 1, 2, 4, … s with jitter. Then one call tries; each success lets two more through, so that a
    crowd returns over several rounds, and after 32 the route is fully open."""

    def __init__(self, client: RedisClient, *, rng: random.Random | None = None) -> None:
        self._client = client
        self._rng = rng or random.Random()

    async def enter(
        self, name: str, rules: LimitRules, *, session: str = "", patience_s: float = 0.0, placed: bool = False
    ) -> CallAllowed | CallHeld:
        """Decide whether a call for `session` may be made now. A caller that can wait
        (`patience_s`) gets a place, and passes `placed` when it asks again."""
        code, number, *why = await self._client.run(
            "fleet/limit_enter",
            limit=keys.limit(name),
            hang_ms=_ms(rules.hang_s),
            interval_us=rules.interval_us,
            burst=rules.burst,
            patience_us=int(patience_s * 1_000_000),
            placed=int(placed),
            caller=_hash(session),
            probe_ms=_ms(rules.probe_s),
        )
        kind, crowd = why or (b"", 0)
        reason: HeldBy = "rate_limit" if kind == b"rate_limit" else "overloaded"
        wait_s = number / 1000
        match code:
            case b"go" | b"go_and_report":
                return CallAllowed(number, code == b"go_and_report")
            case b"placed" | b"too_many":
                return CallHeld(wait_s, "requests_per_minute", placed=code == b"placed", next_s=wait_s)
            case b"closed":
                return CallHeld(wait_s, reason, next_s=wait_s, crowd=crowd)
            case _:
                look_s = _TRYING_S * self._rng.uniform(0.5, 1.0)
                return CallHeld(look_s, reason, next_s=max(look_s, wait_s), crowd=crowd)

    async def report(
        self,
        name: str,
        rules: LimitRules,
        entered: CallAllowed,
        ending: Ending,
        *,
        session: str = "",
        retry_after_s: float | None = None,
    ) -> RouteNews | None:
        """Report how a call for `session` ended; return what that means, if anything."""
        news = await self._client.run(
            "fleet/limit_report",
            limit=keys.limit(name),
            entered=entered.at,
            ended=ending,
            retry_after_ms="" if retry_after_s is None else _ms(retry_after_s),
            caller=_hash(session),
            most_faults=rules.breaker_after,
            most_wait_ms=_ms(rules.breaker_s),
            probe_ms=_ms(rules.probe_s),
            jitter=self._rng.uniform(0.5, 1.0),
            hang_ms=_ms(rules.hang_s),
        )
        return _NEWS.get(news)


async def read_routes(client: RedisClient, ways: Sequence[str]) -> list[RouteReading]:
    """Read the state of routes in one round trip, without changing any. Raises RedisAway."""
    if not ways:
        return []
    fields = "open_at", "kind", "streak", "refused"
    time, *states = await client.pipeline([("TIME",), *(("HMGET", keys.limit(way), *fields) for way in ways)])
    now = server_ms(time)
    return [_parse_route(way, state, now) for way, state in zip(ways, states, strict=True)]


async def count_model_waits(client: RedisClient) -> int:
    """Count the turns and subagents that wait for a model to answer. Raises RedisAway."""
    now = server_ms(await client.command("TIME"))
    count: int = await client.command("ZCOUNT", keys.MODEL_WAITS, now, "+inf")
    return count


def _parse_route(way: str, state: Sequence[bytes | None], now: int) -> RouteReading:
    open_at, kind, streak, refused = state
    if open_at is None:
        return RouteReading(way, "open", faults=int(streak or 0), refused=refused is not None)
    wait_s = max(0.0, (int(open_at) - now) / 1000)
    return RouteReading(way, "closed" if wait_s else "trying", (kind or b"").decode(), wait_s)


def _hash(session: str) -> str:
    """Return what tells sessions apart; the record of a provider names none."""
    return hashlib.blake2s(session.encode(), digest_size=6).hexdigest()


def _ms(seconds: float) -> int:
    return round(seconds * 1000)
