"""What running processes say of themselves, and what the queues look like: for operators and
autoscaling."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from shared.store import keys
from shared.store.client.redis_client import RedisClient
from shared.store.client.scripts import load

PRESENCE_TTL_S: Final = 15
PRESENCE_EVERY_S: Final = 5
TURNS: Final = "turns"
SAMPLE: Final = 256
WHY_OFF: Final = "sandbox.why"
"""The detail of a worker that says why there is no sandbox: long, for `shoal doctor` alone."""


def channel_state(name: str) -> str:
    """The detail of a gateway that says how a channel of it stands: `on`, `away`, `off` and
    others."""
    return f"{name}.state"


def channel_why(name: str) -> str:
    """The detail that says why it does not work; missing when it does."""
    return f"{name}.why"


class ProcessStats(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How a process does. Rates are of the last 10 s: messages that a gateway accepted and refused,
    turns that a worker ended, and how many of those as dead letters. `first_token`, `turn` and
    `answer` count how many took how long in the last minute: in the buckets of
    `metrics.TURN_BUCKETS_S`, and one above; () when there were none. `lag_s` is the latest that the
    event loop was in the last 5 s, rounded up to a bucket; `memory_bytes` 0 is not told.
    """

    memory_bytes: int = 0
    lag_s: float = 0.0
    accepted_per_s: float = 0.0
    refused_per_s: float = 0.0
    ended_per_s: float = 0.0
    failed_per_s: float = 0.0
    first_token: tuple[int, ...] = ()
    turn: tuple[int, ...] = ()
    answer: tuple[int, ...] = ()


class Presence(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A live gateway or worker. `details` are short facts such as slots, model, channels; `ways`
    says by which way to a provider (`shared.store.fleet.provider_limits`) each of its models is
    reached. `vitals` is None for a release that has none."""

    kind: str
    name: str
    host: str
    pid: int
    started_at: int
    version: str
    running: int = 0
    slots: int = 0
    draining: bool = False
    details: dict[str, str] = {}
    provider_routes: dict[str, str] = msgspec.field(default_factory=dict, name="ways")
    stats: ProcessStats | None = msgspec.field(default=None, name="vitals")


class QueueReading(msgspec.Struct, frozen=True):
    """How a queue stands now."""

    name: str
    due: int
    running: int
    delayed: int
    oldest_due_s: float


async def announce(client: RedisClient, presence: Presence) -> None:
    """Say that this process lives; forgotten after 15 s. Say it again every 5 s."""
    await client.run(
        load("fleet/announce"),
        [keys.presence(presence.kind, presence.name), keys.PRESENCE],
        [msgspec.json.encode(presence), PRESENCE_TTL_S],
    )


async def remove_presence(client: RedisClient, presence: Presence) -> None:
    """Take the record back at a clean stop."""
    await client.command("DEL", keys.presence(presence.kind, presence.name))


async def list_processes(client: RedisClient) -> list[Presence]:
    """Every live process, by kind and name."""
    found = await client.command("ZRANGE", keys.PRESENCE, 0, -1)
    if not found:
        return []
    records = await client.command("MGET", *found)
    alive = [msgspec.json.decode(record, type=Presence) for record in records if record is not None]
    return sorted(alive, key=lambda p: (p.kind, p.name))


async def read_queues(client: RedisClient, names: Sequence[str]) -> list[QueueReading]:
    """Counts and the age of the oldest due member of each, by the server's clock, in two or three
    round trips.

    What runs of the background has its leases among those of turns; of more than 256 that run a
    sample says how many.
    """
    turns = TURNS in names or keys.BACKGROUND in names
    leases = list(dict.fromkeys(_leases(name) for name in names))
    (seconds, micros), *told = await client.pipeline(
        [
            ("TIME",),
            *(("HLEN", one) for one in leases),
            *(("ZCARD", keys.queue(name)) for name in names),
            *([("HRANDFIELD", keys.leases(TURNS), SAMPLE)] if turns else []),
        ]
    )
    now = int(seconds) * 1000 + int(micros) // 1000
    leased, totals = dict(zip(leases, told, strict=False)), told[len(leases) : len(leases) + len(names)]
    some: list[bytes] = told[-1] if turns else []
    behind = 0
    if some:
        whose = await client.command("HMGET", keys.FAIR_KEYS, *some)
        behind = round(whose.count(keys.BACKGROUND.encode()) / len(some) * leased[keys.leases(TURNS)])
    due = await client.pipeline(
        [question for name in names for question in (
            ("ZCOUNT", keys.queue(name), "-inf", now),
            ("ZRANGEBYSCORE", keys.queue(name), "-inf", now, "WITHSCORES", "LIMIT", 0, 1),
        )]
    )  # fmt: skip
    return [
        _queue(name, now, total, leased[_leases(name)], behind, *due[2 * at : 2 * at + 2])
        for at, (name, total) in enumerate(zip(names, totals, strict=True))
    ]


async def read_queue(client: RedisClient, name: str) -> QueueReading:
    """One queue, as `read_queues` has it."""
    return (await read_queues(client, [name]))[0]


def _leases(name: str) -> str:
    return keys.leases(TURNS if name == keys.BACKGROUND else name)


def _queue(
    name: str, now: int, total: int, leased: int, behind: int, due: int, oldest: Sequence[bytes]
) -> QueueReading:
    """`behind` of the leases of turns are of the background, whose queue holds only what waits."""
    running, scored = leased, leased
    if name == TURNS:
        running = leased - behind
    elif name == keys.BACKGROUND:
        running, scored = behind, 0
    age_s = max(0.0, (now - float(oldest[1])) / 1000) if oldest else 0.0
    return QueueReading(name, due, running, max(0, total - due - scored), age_s)
