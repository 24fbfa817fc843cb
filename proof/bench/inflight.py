"""Many turns that wait for their model at once, in one worker process: the latency that is added, and the memory.

The model answers after 2 s, the conversations are empty, messages are pushed as a gateway pushes them. *Spread*: evenly
over 2 s, so that the last one comes when the first is answered; *at once*: as fast as one process can. Memory is what a
fresh worker grew by, with a model that does not answer, divided by the turns. The fleet has two workers.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from pathlib import Path
from typing import Final

import uvloop

from proof.bench.plan import Plan
from proof.bench.stage import NO_FSYNC, SILENT, Stage, Want, stage
from proof.bench.stub import model_name
from proof.bench.table import Report, Rounds, quantile
from proof.bench.waves import waves

ROUNDS: Final = 3


def measure(plan: Plan) -> Report:
    """How a worker does with thousands of turns."""
    found = Rounds()
    with tempfile.TemporaryDirectory(prefix="shoal-bench-") as folder:
        uvloop.run((_look if plan.quick else _measure)(found, plan, Path(folder)))
    figures = {figure.name: figure.median for figure in found.figures()}
    notes = (
        f"1,000 spread over 2 s: {figures['1,000 spread: added p50'] / _model_s(plan):.1%} more than the model's time",
        f"fleet: {figures['fleet: turns at once']:,.0f} turns at once, the sum of its slots",
    )
    return Report(title="inflight: turns that wait 2 s for their model", figures=found.figures(), notes=notes)


async def _measure(found: Rounds, plan: Plan, folder: Path) -> None:
    """Each part has workers of its own."""
    async with stage(folder / "latency", _answering(plan, _most(plan))) as on:
        await _latency(found, plan, on)
    async with stage(folder / "rate", _answering(plan, _many(plan))) as on:
        await _rate(found, plan, on)
    async with stage(folder / "memory", _silent(_most(plan))) as on:
        await _memory(found, plan, on)
    async with stage(folder / "fleet", _silent(_many(plan), workers=2)) as on:
        await _fleet(found, plan, on)


async def _look(found: Rounds, plan: Plan, folder: Path) -> None:
    """Parts that want the same model share workers, which take seconds to start."""
    async with stage(folder / "answering", _answering(plan, _most(plan))) as on:
        await _latency(found, plan, on)
        await _rate(found, plan, on)
    async with stage(folder / "silent", _silent(_many(plan), workers=2)) as on:
        await _memory(found, plan, on)
        await _fleet(found, plan, on)


async def _latency(found: Rounds, plan: Plan, on: Stage) -> None:
    many, most, wait_s = _many(plan), _most(plan), _model_s(plan)
    async with waves(on.client, [f"c{n}" for n in range(most)]) as sea:
        await sea.wave(many // 5)  # warms up, and opens connections to the model

        async def one(name: str, count: int, over_s: float) -> None:
            before = await on.used()
            seconds = await sea.wave(count, over_s=over_s)
            used = await on.used()
            found.add(f"{name}: added p50", "s", quantile(seconds, 0.5) - wait_s)
            found.add(f"{name}: added p99", "s", quantile(seconds, 0.99) - wait_s)
            found.add(f"{name}: worker", "ms CPU a turn", (used["worker"] - before["worker"]) / count * 1000)

        for _ in range(plan.repeats(ROUNDS)):
            await one("1,000 spread", many, wait_s)
            await one("1,000 at once", many, 0.0)
        await one("5,000 at once", most, 0.0)


async def _rate(found: Rounds, plan: Plan, on: Stage) -> None:
    many = _many(plan)
    async with waves(on.client, [f"c{n}" for n in range(many)]) as sea:
        await sea.wave(many // 5)
        async with sea.talking(many) as seconds:
            await asyncio.sleep(plan.of(6.0, 0.1))
            before, so_far, began = await on.used(), len(seconds), time.perf_counter()
            await asyncio.sleep(plan.of(12.0, 2 * _model_s(plan)))
            used, turns, took_s = await on.used(), len(seconds) - so_far, time.perf_counter() - began
        turns = max(1, turns)  # a quick round may be over before the first of them
        found.add("1,000 sessions: rate", "turns/s", turns / took_s)
        found.add("1,000 sessions: at once", "turns", float(on.stub.stats().most_open))
        for part in ("worker", "Redis", "model server"):
            found.add(f"1,000 sessions: {part}", "ms CPU a turn", (used[part] - before[part]) / turns * 1000)


async def _memory(found: Rounds, plan: Plan, on: Stage) -> None:
    most = _most(plan)
    async with waves(on.client, [f"c{n}" for n in range(most)]) as sea:
        before = (await on.memory())["worker"]
        for many, name in ((_many(plan), "1,000"), (most, "5,000")):
            await sea.push(many)
            await on.asked(many)
            found.add(f"{name} that wait: worker", "kB each", ((await on.memory())["worker"] - before) / many)


async def _fleet(found: Rounds, plan: Plan, on: Stage) -> None:
    each = _many(plan)
    async with waves(on.client, [f"c{n}" for n in range(2 * each + each // 2)]) as sea:
        await sea.push(2 * each + each // 2)  # more than there are slots
        await on.asked(2 * each)
        found.add("fleet: slots", "turns", float(2 * each))
        found.add("fleet: turns at once", "turns", float(on.stub.stats().most_open))


def _many(plan: Plan) -> int:
    return plan.of(1000, 10)


def _most(plan: Plan) -> int:
    return plan.of(5000, 20)


def _model_s(plan: Plan) -> float:
    return plan.of(2.0, 0.3)


def _answering(plan: Plan, turns: int) -> Want:
    model = model_name(20, first_ms=int(_model_s(plan) * 1000))
    return Want(model=model, turns=turns, gateway=False, fsync=NO_FSYNC)


def _silent(turns: int, *, workers: int = 1) -> Want:
    return Want(model=SILENT, turns=turns, workers=workers, gateway=False, fsync=NO_FSYNC)
