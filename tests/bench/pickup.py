"""How long from a message that is pushed until its reply is heard: Shoal, and stock arq doing the same turn.

The agent does nothing, one message at a time, at moments that no poll knows. arq polls each 0.5 s, as it does by
itself, or each 0.01 s. Commands of an idle worker are counted for `IDLE_S` seconds.
"""

from __future__ import annotations

import asyncio
import random
import statistics
import time
from collections.abc import Awaitable, Callable
from typing import Final

import arq.connections

from shared.messages.live import TurnEvent
from shared.store.client import RedisClient
from shared.store.fanout import ChatNews, Fanout
from shared.store.inbox import Inbox, InboxLimits
from shared.store.outbox import NumberedLine
from tests.bench import noop
from tests.bench.server import calls, emptied, server
from tests.bench.table import Figure, show
from tests.helpers.build import message

ROUNDS: Final = 5
IDLE_S: Final = 3.0
SIDES: Final[dict[str, tuple[str, float, int]]] = {
    "shoal": ("shoal", 100, 200),
    "arq, poll 0.01 s": ("arq", 0.01, 100),
    "arq, poll 0.5 s": ("arq", 0.5, 12),
}
"""What to start, and how many messages a round has."""

Say = Callable[[int], Awaitable[None]]


async def _of_shoal(client: RedisClient, many: int) -> list[float]:
    """Milliseconds of each message."""
    inbox, heard = Inbox(client, InboxLimits(sender_per_minute=0)), asyncio.Event()

    def hear(news: ChatNews) -> None:
        if isinstance(news, NumberedLine | TurnEvent) and not (isinstance(news, TurnEvent) and news.state == "started"):
            heard.set()

    there = asyncio.Event()

    async def connected() -> None:
        there.set()

    fanout = Fanout(client, on_gap=connected)
    await fanout.listen("web:owner/a", hear)
    listening = asyncio.create_task(fanout.run())
    await there.wait()

    async def say(n: int) -> None:
        await inbox.ingest(message(str(n)))

    try:
        return await _times(many, say, heard)
    finally:
        listening.cancel()


async def _of_arq(client: RedisClient, url: str, many: int) -> list[float]:
    pool = await arq.connections.create_pool(arq.connections.RedisSettings.from_dsn(url))
    heard, there = asyncio.Event(), asyncio.Event()

    async def connected() -> None:
        there.set()

    fanout = Fanout(client, on_gap=connected)
    await fanout.listen_raw(noop.REPLIES, lambda _data: heard.set())
    listening = asyncio.create_task(fanout.run())
    await there.wait()

    async def say(n: int) -> None:
        await pool.enqueue_job("turn_of_arq", "owner/a", str(n))

    try:
        return await _times(many, say, heard)
    finally:
        listening.cancel()
        await pool.aclose()


async def _times(many: int, say: Say, heard: asyncio.Event) -> list[float]:
    found: list[float] = []
    for n in range(many + 3):
        await asyncio.sleep(random.uniform(0.0, 0.02))
        heard.clear()
        started = time.perf_counter()
        await say(n)
        async with asyncio.timeout(30):
            await heard.wait()
        if n >= 3:  # the first ones warm up
            found.append((time.perf_counter() - started) * 1000)
    return found


async def _measure(rounds: int) -> tuple[dict[str, list[list[float]]], dict[str, list[float]]]:
    times: dict[str, list[list[float]]] = {name: [] for name in SIDES}
    idle: dict[str, list[float]] = {name: [] for name in SIDES}
    with server() as valkey:
        for _ in range(rounds):
            for name, (kind, number, many) in SIDES.items():
                async with emptied(valkey.url) as client:
                    with noop.workers(kind, valkey.url, number):
                        side = _of_shoal(client, many) if kind == "shoal" else _of_arq(client, valkey.url, many)
                        times[name].append(await side)
                        before = await calls(client)
                        await asyncio.sleep(IDLE_S)
                        idle[name].append((await calls(client) - before) / IDLE_S)
    return times, idle


def main(*, rounds: int, as_json: bool) -> None:
    times, idle = asyncio.run(_measure(rounds or ROUNDS))
    figures: list[Figure] = []
    for name, found in times.items():
        figures.append(Figure(f"{name}: p50", "ms", tuple(statistics.median(one) for one in found)))
        figures.append(Figure(f"{name}: p99", "ms", tuple(sorted(one)[int(len(one) * 0.99)] for one in found)))
        figures.append(Figure(f"{name}: idle", "commands/s", tuple(idle[name])))
    by_name = {figure.name: figure.median for figure in figures}
    notes = [
        f"{name}: p50 {by_name[f'{name}: p50'] / by_name['shoal: p50']:.0f} times Shoal's, "
        f"p99 {by_name[f'{name}: p99'] / by_name['shoal: p99']:.0f} times"
        for name in SIDES
        if name != "shoal"
    ]
    show("pickup: push to reply, one at a time, a turn that does nothing", figures, notes=notes, as_json=as_json)
