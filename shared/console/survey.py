"""How the fleet stands at one moment, and what is wrong with it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from shared.console.plain import counted, size
from shared.store import keys
from shared.store.client import RedisClient
from shared.store.presence import Presence, QueueReading, present, read_queue
from shared.store.server import ServerFacts, read_server

QUEUES: Final = ("turns", keys.BACKGROUND, "jobs")
OLDEST_REDIS: Final = (7, 0)
MEMORY_LIMIT: Final = 0.7
CLOCK_LIMIT_S: Final = 1.0


class Problem(msgspec.Struct, frozen=True):
    """Something that is wrong: `code` for programs, `text` in one line for people, with what to do."""

    code: str
    text: str


class Survey(msgspec.Struct, frozen=True):
    """Everything that `shoal status` shows. `at_ms` is the server's time."""

    queues: tuple[QueueReading, ...]
    processes: tuple[Presence, ...]
    redis: ServerFacts
    dead_letters: int
    at_ms: int


async def survey(client: RedisClient) -> Survey:
    """Look at everything once. Raises RedisAway."""
    queues = [await read_queue(client, name) for name in QUEUES]
    processes = await present(client)
    facts = await read_server(client)
    (seconds, _), letters = await client.pipeline([("TIME",), ("XLEN", keys.DEAD)])
    return Survey(tuple(queues), tuple(processes), facts, letters, int(seconds) * 1000)


def problems(found: Survey) -> list[Problem]:
    """What needs an operator."""
    return [*unserved(found.queues, found.processes), *server_problems(found.redis)]


def unserved(queues: Sequence[QueueReading], processes: Sequence[Presence]) -> Iterator[Problem]:
    """Queues in which work is due and that no worker takes."""
    for queue in queues:
        serving = [one for one in processes if one.kind == "worker" and serves(one, queue.name)]
        if not queue.due or any(not one.draining for one in serving):
            continue
        who = "every worker that serves it is draining" if serving else "no worker serves it"
        yield Problem(
            "no_worker",
            f"{counted(queue.due, 'entry', 'entries')} in queue {queue.name!r}, and {who}: start `python -m worker`",
        )


def serves(worker: Presence, queue: str) -> bool:
    """Whether a worker takes work of this queue, as it says itself. Who takes turns takes those of the background."""
    queue = "turns" if queue == keys.BACKGROUND else queue
    named = worker.details.get("queues", "")
    return not named or queue in named.replace(",", " ").split()


def server_problems(facts: ServerFacts) -> Iterator[Problem]:
    """Settings of Redis under which messages can be lost. What the server does not tell is no problem here."""
    if facts.policy not in (None, "noeviction"):
        yield Problem(
            "evicting",
            f"maxmemory-policy is {facts.policy!r}: Redis throws messages away when its memory is full; "
            "set maxmemory-policy noeviction",
        )
    if facts.append_only is False:
        yield Problem("not_persistent", "appendonly is 'no': a restart of Redis loses everything; set appendonly yes")
    elif facts.fsync not in (None, "always"):
        yield Problem(
            "fsync",
            f"appendfsync is {facts.fsync!r}: a crash of its machine loses the last messages; set appendfsync always",
        )
    if facts.writes_ok is False:
        yield Problem("disk", "Redis' last write to its append-only file failed: look at its log and its disk")
    if facts.limit_bytes and facts.used_bytes is not None and facts.used_bytes > MEMORY_LIMIT * facts.limit_bytes:
        yield Problem(
            "memory",
            f"Redis uses {size(facts.used_bytes)} of {size(facts.limit_bytes)}: at the limit new messages are refused; "
            "raise maxmemory",
        )
    if abs(facts.clock_ahead_s) >= CLOCK_LIMIT_S:
        where = "ahead of" if facts.clock_ahead_s > 0 else "behind"
        yield Problem(
            "clock",
            f"Redis' clock is {abs(facts.clock_ahead_s):.1f} s {where} this machine's: set both by NTP",
        )
    if facts.speaks and release(facts.speaks) < OLDEST_REDIS:
        yield Problem("old", f"Redis is release {facts.speaks}; Shoal needs 7.0 or newer, or any Valkey")


def release(version: str) -> tuple[int, ...]:
    """`7.2.4` as numbers; what is no number counts as 0."""
    return tuple(int(part) if part.isdigit() else 0 for part in version.split(".")[:2])
