"""A snapshot of the fleet. Its cost for Redis does not grow with the number of sessions."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import Final

import msgspec

from shared.store import keys
from shared.store.client.redis_client import RedisClient
from shared.store.delivery.outbox import OutboxReading, read_outboxes
from shared.store.fleet.presence import Presence, QueueReading, list_processes, read_queues
from shared.store.fleet.provider_limits import RouteReading, read_routes
from shared.store.fleet.redis_server import ServerFacts, read_server
from shared.store.turns.dead_letters import DeadLetterEntry, DeadLetters
from shared.store.turns.inbox import Inbox

QUEUES: Final = ("turns", keys.BACKGROUND, "jobs")
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
    """Read everything once; without `config`, skip what a hosted Redis refuses. Raises
    RedisAway."""
    queues = await read_queues(client, QUEUES)
    processes = await list_processes(client)
    routes = await read_routes(client, _provider_routes(processes))
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
    )


def _provider_routes(processes: Iterable[Presence]) -> list[str]:
    return list(islice(dict.fromkeys(way for one in processes for way in one.provider_routes.values()), ROUTE_LIMIT))
