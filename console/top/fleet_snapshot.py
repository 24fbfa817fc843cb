"""Snapshots of the fleet, whose cost for Redis does not grow with the number of sessions, also
while Redis comes and goes; and service levels in a few numbers."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Final

import msgspec

from shared.errors import RedisAway, Refused, SettingsError
from shared.metrics import TURN_BUCKETS_S
from shared.settings import RedisUrl
from shared.store import keys
from shared.store.client.redis_client import RedisClient
from shared.store.delivery.outbox import OutboxReading, read_outboxes
from shared.store.fleet.presence import Presence, QueueReading, list_processes, read_queues
from shared.store.fleet.provider_limits import RouteReading, count_model_waits, read_routes
from shared.store.fleet.redis_server import ServerFacts, read_server
from shared.store.sessions.listing import SessionRow, row_of
from shared.store.turns.dead_letters import DeadLetterEntry, DeadLetters
from shared.store.turns.inbox import Inbox
from shared.store.turns.running import RunningTurn, head_turn, list_running

QUEUES: Final = ("turns", keys.BACKGROUND, "jobs")
_BOUNDS: Final = (0.0, *map(float, TURN_BUCKETS_S), math.inf)
TREND_LOOKS: Final = 60
ROUTE_LIMIT: Final = 20
"""Limit of provider routes that are read."""


class FleetSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that `shoal status` and `shoal top` show. `at_ms` is the server's time."""

    queues: tuple[QueueReading, ...]
    processes: tuple[Presence, ...]
    redis: ServerFacts
    dead_letters: int
    at_ms: int
    provider_routes: tuple[RouteReading, ...] = ()
    outboxes: tuple[OutboxReading, ...] = ()
    newest_letter: DeadLetterEntry | None = None
    model_waits: int = 0
    """Turns and subagents that wait for a model to answer."""

    def of(self, kind: str) -> list[Presence]:
        """Return the processes of one kind."""
        return [one for one in self.processes if one.kind == kind]

    def models(self) -> dict[str, list[str]]:
        """Return the names of the models behind each provider route."""
        found: dict[str, list[str]] = {}
        for model, way in sorted({pair for one in self.processes for pair in one.provider_routes.items()}):
            found.setdefault(way, []).append(model)
        return found


async def take_snapshot(client: RedisClient, *, config: bool = True) -> FleetSnapshot:
    """Read everything; without `config`, not what a hosted Redis refuses. Raises RedisAway."""
    queues = await read_queues(client, QUEUES)
    processes = await list_processes(client)
    provider_routes = dict.fromkeys(way for one in processes for way in one.provider_routes.values())
    routes = await read_routes(client, list(provider_routes)[:ROUTE_LIMIT])
    outboxes = await read_outboxes(client)
    facts = await read_server(client, config=config)
    (seconds, micros), letters = await client.pipeline([("TIME",), ("XLEN", keys.DEAD)])
    newest = await DeadLetters(client, Inbox(client)).newest(limit=1) if letters else []
    return FleetSnapshot(
        queues=tuple(queues),
        processes=tuple(processes),
        redis=facts,
        dead_letters=letters,
        at_ms=int(seconds) * 1000 + int(micros) // 1000,
        provider_routes=tuple(routes),
        outboxes=tuple(outboxes),
        newest_letter=newest[0] if newest else None,
        model_waits=await count_model_waits(client),
    )


class Unavailable(msgspec.Struct, frozen=True):
    """Redis does not answer: since when (s since 1970), and why."""

    since: float
    why: str


class TrendPoint(msgspec.Struct, frozen=True):
    """Turns ended a second, and turns that waited, at one look."""

    ended_per_s: float
    waiting: int


class Observation(msgspec.Struct, frozen=True):
    """The last snapshot, and the outage if there is one. `trend` is of the last looks, oldest
    first. `turns` and `session` are those that the poller was asked for."""

    found: FleetSnapshot | None = None
    away: Unavailable | None = None
    trend: tuple[TrendPoint, ...] = ()
    turns: tuple[RunningTurn, ...] = ()
    session: SessionRow | None = None


class SnapshotPoller:
    """Polls the fleet. `address` is called again while Redis is unavailable: an embedded one may
    come back at another address. `with_turns`: also read running turns; `session`: this one,
    too."""

    def __init__(self, address: Callable[[], str]) -> None:
        self.with_turns = False
        self.session = ""
        self._last = Observation()
        self._address = address
        self._url = ""
        self._client: RedisClient | None = None
        self._config = True

    async def poll(self) -> Observation:
        """Take a snapshot. While Redis is unavailable, return the last one and since when."""
        away = self._last.away
        try:
            if self._client is None or away is not None:
                await self._connect()
            assert self._client is not None
            found = await take_snapshot(self._client, config=self._config)
            turns, session = await self._read_chosen(self._client)
        except (RedisAway, SettingsError) as exc:
            where = f"; looked at {RedisUrl(self._url)}" if self._url else ""
            outage = Unavailable(away.since if away else time.time(), f"{exc}{where}")
            self._last = msgspec.structs.replace(self._last, away=outage)
        else:
            # A server that refused CONFIG is not asked again, or it would log each refusal.
            self._config = found.redis.fsync is not None
            ended_per_s = aggregate(found.processes).ended_per_s
            point = TrendPoint(ended_per_s, found.queues[0].due)
            trend = (*self._last.trend, point)[-TREND_LOOKS:]
            self._last = Observation(found, None, trend, turns, session)
        return self._last

    async def _read_chosen(self, client: RedisClient) -> tuple[tuple[RunningTurn, ...], SessionRow | None]:
        try:
            turns = await list_running(client) if self.with_turns else ()
            return turns, await row_of(client, self.session) if self.session else None
        except Refused:  # a broken key of one chat must not end the view of the fleet
            return self._last.turns, None

    async def head_turn(self, session: str) -> int | None:
        """Return the number of the turn at the head of a session. Raises RedisAway."""
        return await head_turn(self._client, session) if self._client is not None else None

    async def stop_turn(self, session: str, turn: int) -> bool:
        """Ask for the end of this turn, never of a later one; say whether there was one. Raises
        RedisAway."""
        if self._client is None:
            return False
        return await Inbox(self._client).stop(session, turn) is not None

    async def close(self) -> None:
        """Close the connection."""
        if self._client is not None:
            await self._client.close()

    async def _connect(self) -> None:
        url = self._address()
        if url != self._url:
            await self.close()
            self._url, self._client = url, RedisClient(url, name="shoal-top")
        self._config = True


class DurationQuantiles(msgspec.Struct, frozen=True):
    """Quantiles of durations in the last minute, out of `count`.

    Estimated from buckets, as in the dashboards; above the highest bound it is that bound. None
    when nothing was measured.
    """

    count: int = 0
    p50_s: float | None = None
    p95_s: float | None = None


class FleetAggregates(msgspec.Struct, frozen=True, kw_only=True):
    """Rates of the last 10 s and durations. `first_token` is measured from the claim of a turn to
    its first text, `turn` to its end, `answer` from a message's acceptance to the end of its
    turn."""

    accepted_per_s: float
    refused_per_s: float
    ended_per_s: float
    failed_per_s: float
    first_token: DurationQuantiles
    turn: DurationQuantiles
    answer: DurationQuantiles


def aggregate(processes: Iterable[Presence]) -> FleetAggregates:
    """Aggregate all processes."""
    stats = [one.stats for one in processes if one.stats is not None]
    return FleetAggregates(
        accepted_per_s=_rate(one.accepted_per_s for one in stats),
        refused_per_s=_rate(one.refused_per_s for one in stats),
        ended_per_s=_rate(one.ended_per_s for one in stats),
        failed_per_s=_rate(one.failed_per_s for one in stats),
        first_token=_times(one.first_token for one in stats),
        turn=_times(one.turn for one in stats),
        answer=_times(one.answer for one in stats),
    )


def _rate(each: Iterable[float]) -> float:
    return round(max(0.0, sum(each)), 2)


def _times(each: Iterable[Sequence[int]]) -> DurationQuantiles:
    """Sum the buckets. A process of a version with other buckets is left out."""
    counts = [sum(column) for column in zip(*(one for one in each if len(one) == len(_BOUNDS) - 1), strict=True)]
    total = sum(counts)
    if not total:
        return DurationQuantiles()
    return DurationQuantiles(total, _quantile(counts, 0.5 * total), _quantile(counts, 0.95 * total))


def _quantile(counts: Sequence[int], rank: float) -> float:
    """Interpolate the `rank`th value, assuming an even spread within its bucket."""
    below = 0
    for low, high, count in zip(_BOUNDS, _BOUNDS[1:], counts, strict=False):
        if count and below + count >= rank:
            return low if math.isinf(high) else round(low + (high - low) * (rank - below) / count, 3)
        below += count
    return _BOUNDS[-2]
