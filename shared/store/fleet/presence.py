"""Presence of running processes, and the state of the queues: for operators and autoscaling."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Final

import msgspec

from shared.store import keys
from shared.store.client.redis_client import RedisClient, Value, pairs, server_ms

PRESENCE_TTL_S: Final = 15
PRESENCE_EVERY_S: Final = 5
TURNS: Final = "turns"
SAMPLE: Final = 256
WHY_OFF: Final = "sandbox.why"
"""Detail of a worker: why it has no sandbox. Long, and only for `shoal doctor`."""
TOOLS_LEFT_OUT: Final = "tools_left_out.why"
"""Detail of a worker: the tools of MCP servers that it cannot offer, and why."""
LIMITED_BY: Final = "sandbox.limited_by"
"""Detail of a worker: `cgroup` where the kernel limits all of a command, else `census`."""


async def kill_worker_of(client: RedisClient, session: str) -> None:
    """Ask the worker that has the turn of a session to kill itself. It does so only where `shoal
    up` runs the demo model. Raises RedisAway."""
    await client.command("PUBLISH", keys.CONTROL, f"{keys.turn(session)} {keys.KILL}")


def tools_left_out(processes: Sequence[Presence]) -> str:
    """Return the tools of MCP servers that workers cannot offer, with the reasons; "" for none."""
    return "; ".join(sorted({one.details[TOOLS_LEFT_OUT] for one in processes if TOOLS_LEFT_OUT in one.details}))


def channel_state(name: str) -> str:
    """Name the detail of a gateway that holds the state of a channel, such as `on` or `away`."""
    return f"{name}.state"


def channel_why(name: str) -> str:
    """Name the detail that says why a channel does not work, if it does not."""
    return f"{name}.why"


class ProcessStats(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Statistics of a process. Rates are of the last 10 s: messages that a gateway accepted and
    refused, turns that a worker ended, and those of them that became dead letters.
    `first_token`, `turn` and `answer` count durations of the last minute in the buckets of
    `metrics.TURN_BUCKETS_S`, and one above; () when there were none. `lag_s` is the worst lag of
    the event loop in the last 5 s, rounded up to a bucket; `memory_bytes` 0 means unknown."""

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
    """A live gateway or worker. A worker runs at most `slots` turns and `job_slots` jobs. `details`
    are short facts such as slots, model, channels; `provider_routes` maps each of its models to the
    route by which it is reached (`shared.store.fleet.provider_limits`)."""

    kind: str
    name: str
    host: str
    pid: int
    started_at: int
    version: str
    running: int = 0
    slots: int = 0
    job_slots: int = 0
    draining: bool = False
    details: dict[str, str] = {}
    provider_routes: dict[str, str] = msgspec.field(default_factory=dict, name="ways")
    stats: ProcessStats | None = msgspec.field(default=None, name="vitals")


class QueueReading(msgspec.Struct, frozen=True):
    """State of a queue at one moment."""

    name: str
    due: int
    running: int
    delayed: int
    oldest_due_s: float


async def announce(client: RedisClient, presence: Presence) -> None:
    """Announce that this process lives. The record expires after 15 s; renew it every 5 s."""
    await client.run(
        "fleet/announce",
        presence=keys.presence(presence.kind, presence.name),
        record=msgspec.json.encode(presence),
        keep_s=PRESENCE_TTL_S,
    )


async def remove_presence(client: RedisClient, presence: Presence) -> None:
    """Delete the record at a clean stop."""
    await client.command("DEL", keys.presence(presence.kind, presence.name))


async def list_processes(client: RedisClient) -> list[Presence]:
    """Return every live process, by kind and name."""
    found = await client.command("ZRANGE", keys.PRESENCE, 0, -1)
    if not found:
        return []
    records = await client.command("MGET", *found)
    alive = []
    for record in filter(None, records):
        with contextlib.suppress(msgspec.DecodeError, ValueError):  # not a record of ours
            alive.append(msgspec.json.decode(record, type=Presence))
    return sorted(alive, key=lambda p: (p.kind, p.name))


async def read_queues(client: RedisClient, names: Sequence[str]) -> list[QueueReading]:
    """Read counts and the age of the oldest due member of each queue, by the server's clock, in two
    or three round trips. Running turns of the background have their leases among those of turns; if
    more than 256 run, a sample estimates how many."""
    turns = TURNS in names or keys.BACKGROUND in names
    leases = list(dict.fromkeys(_leases(name) for name in names))
    time, *counts = await client.pipeline(
        [
            ("TIME",),
            *(("HLEN", one) for one in leases),
            *(("ZCARD", keys.queue(name)) for name in names),
            *([("HRANDFIELD", keys.leases(TURNS), SAMPLE)] if turns else []),
        ]
    )
    now = server_ms(time)
    leased = dict(zip(leases, counts, strict=False))
    totals = counts[len(leases) : len(leases) + len(names)]
    some: list[bytes] = counts[-1] if turns else []
    behind = 0
    # Of the sampled leases, the part that belongs to the background stands for all.
    if some:
        whose = await client.command("HMGET", keys.FAIR_KEYS, *some)
        share = whose.count(keys.BACKGROUND.encode()) / len(some)
        behind = round(share * leased[keys.leases(TURNS)])
    commands: list[tuple[Value, ...]] = []
    for name in names:
        key = keys.queue(name)
        page = ("WITHSCORES", "LIMIT", 0, 1)
        commands += ("ZCOUNT", key, "-inf", now), ("ZRANGEBYSCORE", key, "-inf", now, *page)
    due = pairs(await client.pipeline(commands))
    return [
        _queue(name, now, total, leased[_leases(name)], behind, many, oldest)
        for name, total, (many, oldest) in zip(names, totals, due, strict=True)
    ]


async def read_queue(client: RedisClient, name: str) -> QueueReading:
    """Read one queue, as `read_queues` does."""
    return (await read_queues(client, [name]))[0]


def _leases(name: str) -> str:
    return keys.leases(TURNS if name == keys.BACKGROUND else name)


def _queue(
    name: str, now: int, total: int, leased: int, behind: int, due: int, oldest: Sequence[bytes]
) -> QueueReading:
    # `behind` of the leases of turns belong to the background, whose queue holds what waits.
    running = leased
    scored = leased
    if name == TURNS:
        running = leased - behind
    elif name == keys.BACKGROUND:
        running = behind
        scored = 0
    age_s = max(0.0, (now - float(oldest[1])) / 1000) if oldest else 0.0
    return QueueReading(name, due, running, max(0, total - due - scored), age_s)
