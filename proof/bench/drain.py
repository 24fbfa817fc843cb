"""How many turns that do nothing one worker, and two, can end, and what each costs: Shoal, and stock arq.

All messages wait before the workers start. The time is from the first end of a turn to the last.
"""

from __future__ import annotations

import asyncio
import time
from typing import Final

import arq.connections
import msgspec

from proof.bench import noop
from proof.bench.plan import Plan
from proof.bench.server import calls, cpu_s, emptied, server
from proof.bench.table import Report, Rounds
from shared.store import keys
from shared.store.client.redis_client import RedisClient
from shared.store.turns.inbox import Inbox, InboxLimits
from tests.helpers.build import message

ROUNDS: Final = 5
TURNS_EACH: Final = 4
"""Of one conversation."""

SIDES: Final[dict[str, tuple[str, float, int, int]]] = {
    "shoal, 1 worker": ("shoal", 100, 1, 6000),
    "shoal, 2 workers": ("shoal", 100, 2, 6000),
    "arq, 1 worker": ("arq", 0.01, 1, 2000),
    "arq, 2 workers": ("arq", 0.01, 2, 2000),
}
"""What to start, its slots or its poll, how many, and how many turns."""

QUICK_TURNS: Final = 300
"""Of each side in a quick look."""


class Cost(msgspec.Struct, frozen=True):
    """Of one round: turns a second; CPU milliseconds a turn of all workers, and of the server; its commands a turn."""

    rate: float
    worker_ms: float
    redis_ms: float
    commands: float


def measure(plan: Plan) -> Report:
    """Both sides."""
    found = Rounds()
    asyncio.run(_measure(found, plan))
    ours, theirs = "shoal, 1 worker", "arq, 1 worker"
    notes = (
        f"one worker: {found.times(f'{ours}: rate', f'{theirs}: rate'):.1f} times arq's turns a second",
        f"worker CPU a turn: 1/{found.times(f'{theirs}: worker', f'{ours}: worker'):.1f} of arq's",
        f"Redis CPU a turn: 1/{found.times(f'{theirs}: Redis', f'{ours}: Redis'):.1f} of arq's",
        f"a second worker: {found.times('shoal, 2 workers: rate', f'{ours}: rate'):.2f} times one worker",
        f"a second worker of arq: {found.times('arq, 2 workers: rate', f'{theirs}: rate'):.2f} times one",
    )
    return Report(title="drain: turns that do nothing, all due at once", figures=found.figures(), notes=notes)


async def _measure(found: Rounds, plan: Plan) -> None:
    with server() as valkey:
        for _ in range(plan.repeats(ROUNDS)):
            for name, (kind, number, many, turns) in SIDES.items():
                async with emptied(valkey.url) as client:
                    cost = await drain(client, valkey.url, kind, number, many, plan.of(turns, QUICK_TURNS))
                found.add(f"{name}: rate", "turns/s", cost.rate)
                found.add(f"{name}: worker", "ms CPU a turn", cost.worker_ms)
                found.add(f"{name}: Redis", "ms CPU a turn", cost.redis_ms)
                found.add(f"{name}: commands, inside of scripts too", "a turn", cost.commands)


async def drain(client: RedisClient, url: str, kind: str, number: float, many: int, turns: int) -> Cost:
    """Fill the queue, start workers, and wait until nothing is left."""
    sessions = max(1, turns // TURNS_EACH)
    await (_fill_arq(url, turns, sessions) if kind == "arq" else _fill(client, turns, sessions))
    queue = "arq:queue" if kind == "arq" else keys.queue("turns")
    with noop.workers(kind, url, number, many) as pool:
        left = await _left(client, queue)
        started, before = time.perf_counter(), (await cpu_s(client), await calls(client))
        used, at = pool.cpu_s, await _done(client, kind, sessions)
        while left:
            await asyncio.sleep(0.02)
            left = await _left(client, queue)
        seconds = time.perf_counter() - started
        # A quick round may be over before the first look.
        done = max(1, await _done(client, kind, sessions) - at)
        used = pool.cpu_s - used
        return Cost(
            rate=done / seconds,
            worker_ms=used / done * 1000,
            redis_ms=(await cpu_s(client) - before[0]) / done * 1000,
            commands=(await calls(client) - before[1]) / done,
        )


async def _fill(client: RedisClient, turns: int, sessions: int) -> None:
    inbox = Inbox(client, InboxLimits(cap=turns, sender_per_minute=0))
    for start in range(0, turns, 100):
        sent = [
            msgspec.structs.replace(message(chat=f"p{n % sessions}/a"), sender_id=f"p{n % sessions}")
            for n in range(start, start + 100)
        ]
        await asyncio.gather(*(inbox.ingest(one) for one in sent))


async def _fill_arq(url: str, turns: int, sessions: int) -> None:
    pool = await arq.connections.create_pool(arq.connections.RedisSettings.from_dsn(url))
    for start in range(0, turns, 100):
        await asyncio.gather(
            *(pool.enqueue_job("turn_of_arq", f"p{n % sessions}/a", "hi") for n in range(start, start + 100))
        )
    await pool.aclose()


async def _left(client: RedisClient, queue: str) -> int:
    return int(await client.command("ZCARD", queue))


async def _done(client: RedisClient, kind: str, sessions: int) -> int:
    """How many turns have ended: each leaves two entries of a conversation."""
    pattern = "history:p" if kind == "arq" else "shoal:{0ax}:history:web:p"
    counts = await client.pipeline([("LLEN", f"{pattern}{n}/a") for n in range(sessions)])
    return int(sum(counts)) // 2
