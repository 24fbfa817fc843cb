"""How long from a message that is pushed until its reply is heard: Shoal, and stock arq doing the same turn.

The agent does nothing, one message at a time, at moments that no poll knows. arq polls each 0.5 s, as it does by
itself, or each 0.01 s. CPU of the worker and of Redis is for such a turn, what they use at rest taken off. Commands of
an idle worker are those that its connections send; the last figure is of a whole worker process, all its chores in it.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Final, NamedTuple

import arq.connections
import uvloop

from proof.bench import noop
from proof.bench.plan import Plan
from proof.bench.server import calls, cpu_s, emptied, server
from proof.bench.stage import NO_FSYNC, Want, stage
from proof.bench.table import Report, Rounds, quantile
from shared.messages.live import TurnEvent
from shared.store.client.redis_client import RedisClient
from shared.store.delivery.fanout import ChatNews, Fanout
from shared.store.delivery.outbox import NumberedLine
from shared.store.turns.inbox import Inbox, InboxLimits
from shared.tasks import cancel_all
from tests.helpers.build import message
from tests.helpers.monitor import monitoring

ROUNDS: Final = 3
SIDES: Final[dict[str, tuple[str, float, int, float]]] = {
    "shoal": ("shoal", 100, 600, 0.0),
    "shoal, 300 a second": ("shoal", 100, 400, 0.005),
    "shoal, 80 a second": ("shoal", 100, 200, 0.02),
    "arq, poll 0.01 s": ("arq", 0.01, 100, 0.02),
    "arq, poll 0.5 s": ("arq", 0.5, 24, 1.0),
}
"""What to start, its slots or its poll, how many messages a round has, and up to how many seconds lie between two: of a
slow poll up to two of it, or each message would come just after one. Where processes rest between two messages, other
programs take their caches: Shoal is measured as a fleet at work is, one message after the other, and with rests."""

QUICK: Final = ("shoal", "arq, poll 0.01 s", "arq, poll 0.5 s")
"""The sides of a quick look: one of each kind."""

CHATS: Final = 40
"""The messages come from so many chats in turn, so that none of them becomes a long one."""

WARM: Final = 3
Say = Callable[[int], Awaitable[None]]


class Pace(NamedTuple):
    """How many messages count, up to how many seconds lie between two, and how many come before."""

    many: int
    pause_s: float
    warm: int


def measure(plan: Plan) -> Report:
    """All sides, and a whole worker."""
    found = Rounds()
    uvloop.run(_sides(found, plan))  # as a gateway has it
    asyncio.run(_whole(found, plan))
    notes = tuple(
        f"{name}: p50 {found.times(f'{name}: p50', 'shoal: p50'):.0f} times Shoal's, "
        f"p99 {found.times(f'{name}: p99', 'shoal: p99'):.0f} times"
        for name in SIDES
        if name.startswith("arq")
    )
    title = "pickup: push to reply, one at a time, a turn that does nothing"
    return Report(title=title, figures=found.figures(), notes=notes)


async def _sides(found: Rounds, plan: Plan) -> None:
    with server() as valkey:
        for _ in range(plan.repeats(ROUNDS)):
            for name in plan.of((*SIDES,), QUICK):
                kind, number, many, pause_s = SIDES[name]
                pace = plan.of(Pace(many, pause_s, WARM), Pace(2, 0.0, 1))
                async with emptied(valkey.url) as client:
                    with noop.workers(kind, valkey.url, number) as pool:
                        await _side(found, plan, client, valkey.url, pool, name, pace)


async def _side(
    found: Rounds, plan: Plan, client: RedisClient, url: str, pool: noop.Pool, name: str, pace: Pace
) -> None:
    async def used() -> tuple[float, float, float]:
        return pool.cpu_s * 1000, await cpu_s(client) * 1000, await calls(client)

    say = _shoal(client) if name.startswith("shoal") else _arq(client, url)
    async with say as (push, events):
        before, began = await used(), time.perf_counter()
        times = await _times(pace, push, events)
        after, lasted_s = await used(), time.perf_counter() - began
    rest_s = plan.of(4.0, 0.2)
    rest = [await used()]
    async with monitoring(url, client) as monitor:
        await asyncio.sleep(rest_s)
        await monitor.catch_up()
        idle = monitor.log.of(noop.NAME if name.startswith("shoal") else "")
    rest.append(await used())
    turns = pace.many + pace.warm
    for what, at, unit in (("worker", 0, "ms CPU a turn"), ("Redis", 1, "ms CPU a turn"), ("commands", 2, "a turn")):
        a_second = (rest[1][at] - rest[0][at]) / rest_s
        label = "commands, inside of scripts too" if what == "commands" else what
        found.add(f"{name}: {label}", unit, (after[at] - before[at] - a_second * lasted_s) / turns)
    found.add(f"{name}: p50", "ms", statistics.median(times))
    found.add(f"{name}: p99", "ms", quantile(times, 0.99))
    found.add(f"{name}: idle", "client commands/s", len(idle) / rest_s)


@contextlib.asynccontextmanager
async def _shoal(client: RedisClient) -> AsyncIterator[tuple[Say, asyncio.Event]]:
    inbox, events, there = Inbox(client, InboxLimits()), asyncio.Event(), asyncio.Event()

    def hear(news: ChatNews) -> None:
        if isinstance(news, NumberedLine | TurnEvent) and not (isinstance(news, TurnEvent) and news.state == "started"):
            events.set()

    async def connected() -> None:
        there.set()

    async def push(n: int) -> None:
        await inbox.ingest(message(str(n), chat=f"owner/{n % CHATS}"))

    fanout = Fanout(client, on_gap=connected)
    for n in range(CHATS):
        await fanout.follow_chat(f"web:owner/{n}", hear)
    listening = asyncio.create_task(fanout.run())
    await there.wait()
    try:
        yield push, events
    finally:
        await cancel_all([listening])


@contextlib.asynccontextmanager
async def _arq(client: RedisClient, url: str) -> AsyncIterator[tuple[Say, asyncio.Event]]:
    pool = await arq.connections.create_pool(arq.connections.RedisSettings.from_dsn(url))
    events, there = asyncio.Event(), asyncio.Event()

    async def connected() -> None:
        there.set()

    async def push(n: int) -> None:
        await pool.enqueue_job("turn_of_arq", "owner/a", str(n))

    fanout = Fanout(client, on_gap=connected)
    await fanout.subscribe(noop.REPLIES, lambda _data: events.set())
    listening = asyncio.create_task(fanout.run())
    await there.wait()
    try:
        yield push, events
    finally:
        await cancel_all([listening])
        await pool.aclose()


async def _times(pace: Pace, push: Say, events: asyncio.Event) -> list[float]:
    """Milliseconds of each message. Pauses are spread evenly, in any order, so that a few meet a poll as many do."""
    found: list[float] = []
    turns = pace.many + pace.warm
    pauses = [pace.pause_s * (n + random.random()) / turns for n in range(turns)]
    random.shuffle(pauses)
    for n, pause in enumerate(pauses):
        await asyncio.sleep(pause)
        events.clear()
        started = time.perf_counter()
        await push(n)
        async with asyncio.timeout(30):
            await events.wait()
        if n >= pace.warm:
            found.append((time.perf_counter() - started) * 1000)
    return found


async def _whole(found: Rounds, plan: Plan) -> None:
    seconds = plan.of(20.0, 0.3)
    with tempfile.TemporaryDirectory(prefix="shoal-bench-") as folder:
        async with stage(Path(folder), Want(fsync=NO_FSYNC)) as on, monitoring(on.url, on.client) as monitor:
            await monitor.catch_up()
            monitor.log.clear()
            before = await on.used()
            await asyncio.sleep(seconds)
            await monitor.catch_up()
            used = await on.used()
            for name in ("worker", "gateway"):
                sent = len(monitor.log.of(f"shoal-{name}"))
                found.add(f"whole {name}: idle", "client commands/s", sent / seconds)
                found.add(f"whole {name}: idle CPU", "ms a second", (used[name] - before[name]) / seconds * 1000)
