"""CPU of one model call in the worker's process, and of one streamed delta from the model to the page.

Calls: our two clients (`direct`, `litellm`) against stock LiteLLM, stock LiteLLM through its own HTTP handler and the
openai SDK, whole and streamed; a prompt of 40 messages and 8 tools. Each side is a process of its own, as a worker has
one client and not all, and the sides take turns. Deltas end to end: the real gateway, worker and Redis; what a turn of
100 deltas costs more than one of a single delta, a delta. Stock LiteLLM's figure is the same difference of its calls
alone, with nothing behind them.
"""

from __future__ import annotations

import asyncio
import statistics
import tempfile
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final

import msgspec

from proof.bench.chats import seated
from proof.bench.children import Child, Children
from proof.bench.llm_side import SIDES, Ready
from proof.bench.plan import Plan
from proof.bench.stage import NO_FSYNC, Stage, Want, stage
from proof.bench.stub import Stub, model_name
from proof.bench.table import Report, Rounds

TITLE: Final = "llm: 40 messages, 8 tools, 100 deltas"
ROUNDS: Final = 6
TURN_ROUNDS: Final = 4
DELTAS: Final = 100
PEOPLE: Final = 8
ONE, TOGETHER, ISOLATED = model_name(1), model_name(DELTAS), model_name(DELTAS, gap_ms=5)
WAYS: Final = {
    "whole": f"{TOGETHER} whole",
    "stream of 1": f"{ONE} stream",
    "stream, together": f"{TOGETHER} stream",
    "stream, 5 ms apart": f"{ISOLATED} stream",
}
TURNS: Final = {"one": ONE, "together": TOGETHER, "5 ms apart": ISOLATED}
PRESETS: Final = {"one": "default", "together": "together", "5 ms apart": "apart"}
"""What a chat of a quick look, which has one fleet, calls its model."""


def measure(plan: Plan) -> Report:
    """Calls, then deltas."""
    found = Rounds()
    with Children() as start:
        _calls(found, plan, start)
    with tempfile.TemporaryDirectory(prefix="shoal-bench-") as folder:
        asyncio.run(_deltas(found, plan, Path(folder)))
    if plan.quick:
        return Report(title=TITLE, figures=found.figures())
    by_name = {figure.name: statistics.median(figure.values) for figure in found.figures()}
    for how in ("together", "5 ms apart"):
        theirs = (by_name[f"stream, {how}: stock"] - by_name["stream of 1: stock"]) / (DELTAS - 1)
        found.add(f"delta, {how}: stock LiteLLM's call alone", "ms CPU each", theirs)
    return Report(title=TITLE, figures=found.figures(), notes=_notes(found))


def _calls(found: Rounds, plan: Plan, start: Children) -> None:
    stub = Stub(start)
    sides: dict[str, Child] = {}
    for name in plan.of(SIDES, ("socket", "direct", "openai")):  # LiteLLM's import alone takes too long for a look
        sides[name] = start("proof.bench.llm_side", name, stub.base_url, talks=True)
    for name, side in sides.items():
        ready = msgspec.json.decode(side.line(), type=Ready)
        found.add(f"ready: {name}", "s", ready.seconds)
        found.add(f"ready: {name}, memory", "MB more", ready.megabytes)
    for n in range(plan.repeats(ROUNDS) + plan.of(1, 0)):
        for way, words in WAYS.items():
            for name, side in sides.items():
                before = stub.process.cpu_s
                spent = float(side.ask(words))
                if n or plan.quick:  # the first one warms up
                    found.add(f"{way}: {name}", "ms CPU a call", spent)
                    if name == "socket" and way == "stream, together":
                        found.add("model server", "ms CPU a call", (stub.process.cpu_s - before) / 40 * 1000)


async def _deltas(found: Rounds, plan: Plan, folder: Path) -> None:
    turns, rounds = plan.of(64, PEOPLE), plan.repeats(TURN_ROUNDS)
    async with AsyncExitStack() as stack:
        on = await (_one_fleet if plan.quick else _fleets)(stack, folder)
        for n in range(rounds + plan.of(1, 0)):
            spent: dict[str, dict[str, float]] = {}
            for name, side in on.items():
                chats = [f"{PRESETS[name]}-r{n}c{i}" for i in range(turns)]
                async with seated(side.address, chats, PEOPLE) as table:
                    if plan.quick:
                        await table.talk(f"/model {PRESETS[name]}")
                    before = await side.used()
                    await table.talk()
                    after = await side.used()
                spent[name] = {part: (after[part] - before[part]) / turns * 1000 for part in before}
            for how in ("together", "5 ms apart") if n or plan.quick else ():
                parts = {
                    part: (spent[how][part] - spent["one"][part]) / (DELTAS - 1)
                    for part in ("gateway", "worker", "Redis")
                }
                for part, ms in parts.items():
                    found.add(f"delta, {how}: {part}", "ms CPU each", ms)
                found.add(f"delta, {how}: model to page", "ms CPU each", sum(parts.values()))
                more = (spent[how]["commands"] - spent["one"]["commands"]) / (DELTAS - 1) / 1000
                found.add(f"delta, {how}: commands", "each", more)


async def _fleets(stack: AsyncExitStack, folder: Path) -> dict[str, Stage]:
    """One for each model."""
    return {
        name: await stack.enter_async_context(stage(folder / name, Want(model=model, fsync=NO_FSYNC)))
        for name, model in TURNS.items()
    }


async def _one_fleet(stack: AsyncExitStack, folder: Path) -> dict[str, Stage]:
    """The same one for all; each chat chooses its model."""
    presets = {
        f"SHOAL_MODEL__PRESETS__{preset.upper()}__NAME": f"openai/{TURNS[name]}"
        for name, preset in PRESETS.items()
        if preset != "default"
    }
    made = await stack.enter_async_context(stage(folder, Want(model=ONE, fsync=NO_FSYNC, settings=presets)))
    return dict.fromkeys(TURNS, made)


def _notes(found: Rounds) -> tuple[str, ...]:
    by_name = {figure.name: statistics.median(figure.values) for figure in found.figures()}

    def share(way: str, name: str) -> str:
        return f"{name} 1/{found.times(f'{way}: stock', f'{way}: {name}'):.1f}"

    lines = [
        f"{way}, of stock LiteLLM's CPU: " + ", ".join(share(way, name) for name in ("direct", "litellm", "handler"))
        for way in WAYS
    ]
    for how in ("together", "5 ms apart"):
        times = by_name[f"delta, {how}: stock LiteLLM's call alone"] / by_name[f"delta, {how}: model to page"]
        lines.append(f"a delta from the model to the page, {how}: 1/{times:.1f} of stock LiteLLM's call alone")
    return tuple(lines)
