"""5,000 WebSockets on one gateway: what each holds, what they cost while nothing happens, and how late deltas are.

*Spread*: 1,000 deltas a second, each in another chat with one page. *Shared*: 10 a second in one chat that 100 pages
show. Late is from the moment before a delta is published to the one at which the page has read it; the pages and the
publisher are processes of their own. *Bare* is a server that only accepts, see `memory`.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from pathlib import Path
from typing import Final

import uvloop

from proof.bench.children import Child, Children
from proof.bench.crowd import Crowd, crowd
from proof.bench.plan import Plan
from proof.bench.publisher import MARK
from proof.bench.stage import NO_FSYNC, Stage, Want, stage
from proof.bench.table import Report, Rounds, quantile

ROUNDS: Final = 3
SHARED: Final = 100
QUICK: Final = 10
"""Pages of each kind in a quick look."""


def measure(plan: Plan) -> Report:
    """One gateway with all of them."""
    found = Rounds()
    with tempfile.TemporaryDirectory(prefix="shoal-bench-") as folder:
        uvloop.run(_gateway(found, plan, Path(folder)))
    uvloop.run(_bare(found, plan))
    by_name = {figure.name: figure.median for figure in found.figures()}
    beyond = by_name["open socket: gateway"] - by_name["open socket: bare server"]
    found.add("open socket: beyond the bare server", "kB each", beyond)
    notes = (f"1,000 deltas/s: p99 {by_name['spread: late p99']:.1f} ms late, {by_name['spread: heard']:.1%} heard",)
    return Report(title="sockets: 5,000 on one gateway", figures=found.figures(), notes=notes)


async def _gateway(found: Rounds, plan: Plan, folder: Path) -> None:
    many, sharing = plan.of(5000, QUICK), plan.of(SHARED, QUICK)
    late: list[float] = []
    mark = MARK.encode()

    def hear(frame: bytes) -> None:
        if b'"delta"' in frame[:40]:
            message = frame.find(mark)
            late.append((time.monotonic_ns() - int(frame[message + 1 : frame.find(mark, message + 1)])) / 1e6)

    async with stage(folder, Want(workers=0, fsync=NO_FSYNC)) as on, crowd(on.address, hear) as people:
        with Children() as start:
            publisher = start("proof.bench.publisher", on.url, talks=True)
            publisher.line()
            await _come(found, on, people, many)
            await _quiet(found, on, plan.of(10.0, 0.2))
            await people.come(["shared"] * sharing)
            for _ in range(plan.repeats(ROUNDS)):
                rate, seconds = plan.of(1000.0, 100.0), plan.of(10.0, 0.3)
                await _say(found, on, publisher, late, "spread", f"{many} {rate} {seconds}", 1)
                await _say(found, on, publisher, late, "shared", f"0 10 {seconds}", sharing)


async def _come(found: Rounds, on: Stage, people: Crowd, many: int) -> None:
    await people.come([f"w{n}" for n in range(20)])  # warms up
    before, began, used = on.gateway.memory_kb, time.monotonic(), on.gateway.cpu_s
    await people.come([f"m{n}" for n in range(many)])
    found.add("open socket: gateway", "kB each", (on.gateway.memory_kb - before) / many)
    found.add("login and resume", "ms CPU each", (on.gateway.cpu_s - used) / many * 1000)
    found.add("logins", "a second", many / (time.monotonic() - began))


async def _quiet(found: Rounds, on: Stage, seconds: float) -> None:
    before = on.gateway.cpu_s
    await asyncio.sleep(seconds)
    found.add("nothing happens: gateway", "ms CPU a second", (on.gateway.cpu_s - before) / seconds * 1000)


async def _say(found: Rounds, on: Stage, publisher: Child, late: list[float], name: str, what: str, pages: int) -> None:
    late.clear()
    before = await on.used()
    published = int(await asyncio.to_thread(publisher.ask, what))
    wanted = published * pages
    for _ in range(50):
        if len(late) >= wanted:
            break
        await asyncio.sleep(0.1)
    used = await on.used()
    found.add(f"{name}: late p50", "ms", quantile(late, 0.5))
    found.add(f"{name}: late p99", "ms", quantile(late, 0.99))
    found.add(f"{name}: heard", "of those published", len(late) / wanted)
    found.add(f"{name}: gateway", "us CPU a frame", (used["gateway"] - before["gateway"]) / wanted * 1e6)


async def _bare(found: Rounds, plan: Plan) -> None:
    many = plan.of(5000, QUICK)
    with Children() as start:
        bare = start("proof.bench.bare", talks=True)
        async with crowd(bare.line(), last="welcome") as people:
            await people.come(["w"] * 20)
            before = bare.memory_kb
            await people.come(["m"] * many)
            found.add("open socket: bare server", "kB each", (bare.memory_kb - before) / many)
