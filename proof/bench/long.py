"""What a long answer costs for being kept while it is written, so that a worker that dies costs none of it.

Pages follow answers of ten seconds, 30 pieces a second, from a model that is no further than a function call. The sides
alternate: the text is kept, as it always is, or only shown.
"""

from __future__ import annotations

import asyncio
import tempfile
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final

from proof.bench.chats import seated
from proof.bench.plan import Plan
from proof.bench.stage import Stage, Want, stage
from proof.bench.stub import model_name
from proof.bench.table import Report, Rounds

ROUNDS: Final = 5
PEOPLE: Final = 20
PIECES_A_SECOND: Final = 30
ANSWER_S: Final = 10
KEPT: Final = "kept"
SHOWN: Final = "only shown"


def measure(plan: Plan) -> Report:
    """Both sides: CPU and commands of a second of an answer."""
    found = Rounds()
    asyncio.run(_measure(found, plan))
    notes = (
        f"Redis: {found.times(f'{KEPT}: Redis', f'{SHOWN}: Redis'):.2f} times the CPU of text that is only shown",
        f"all: {found.times(f'{KEPT}: all', f'{SHOWN}: all'):.2f} times",
    )
    return Report(title="long: a long answer, kept while it is written", figures=found.figures(), notes=notes)


async def _measure(found: Rounds, plan: Plan) -> None:
    seconds = plan.of(ANSWER_S, 1)
    model = model_name(seconds * PIECES_A_SECOND, gap_ms=1000 // PIECES_A_SECOND)
    with tempfile.TemporaryDirectory(prefix="shoal-bench-") as folder:
        async with AsyncExitStack() as stack:
            sides = {
                name: await stack.enter_async_context(
                    stage(Path(folder) / name, Want(model=model, ready=True, unkept=name == SHOWN))
                )
                for name in (KEPT, SHOWN)
            }
            for number in range(plan.repeats(ROUNDS)):
                for name, side in sides.items():
                    await _add_round(found, name, side, number, seconds)


async def _add_round(found: Rounds, name: str, on: Stage, number: int, seconds: int) -> None:
    chats = [f"r{number}c{i}" for i in range(PEOPLE)]
    async with seated(on.address, chats, PEOPLE) as table:
        before = await on.used()
        await table.talk("Write a long one.")
        after = await on.used()
    used = {part: (after[part] - before[part]) / (PEOPLE * seconds) for part in before}
    for part in ("gateway", "worker", "Redis"):
        found.add(f"{name}: {part}", "ms CPU a second", used[part] * 1000)
    found.add(f"{name}: all", "ms CPU a second", sum(used[part] for part in ("gateway", "worker", "Redis")) * 1000)
    found.add(f"{name}: commands, inside of scripts too", "a second", used["commands"])
