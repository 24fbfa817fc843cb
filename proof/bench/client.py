"""What our own connection to Redis saves: a whole turn, and turns that do nothing, with it and with redis-py.

The benches `turn` (the model is no further than a function call) and `drain` (one worker), each side in turn: the one
that began a round ends the next. CPU of the processes, so that other load on the machine moves little.
"""

from __future__ import annotations

import asyncio
import tempfile
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Final

from proof.bench.chats import seated
from proof.bench.drain import QUICK_TURNS, drain
from proof.bench.plan import Plan
from proof.bench.server import emptied, server
from proof.bench.stage import Want, stage
from proof.bench.table import Report, Rounds
from proof.bench.turn import PEOPLE, PROCESSES, add_round, fill, make_skills

ROUNDS: Final = 7
OURS: Final = "own connection"
THEIRS: Final = "redis-py"
SIDES: Final = (OURS, THEIRS)
WORTH_IT: Final = 1.25
"""Times our CPU of a whole turn: with less the library would replace our connection."""


def measure(plan: Plan) -> Report:
    """Both sides of both."""
    found = Rounds()
    asyncio.run(_turn(found, plan))
    asyncio.run(_drain(found, plan))
    whole = _times(found, "all")
    notes = (
        f"redis-py: {whole:.2f} times the CPU of a whole turn; {WORTH_IT} keeps our own connection",
        *(f"redis-py: {_times(found, part):.2f} times the CPU of the {part} in it" for part in PROCESSES),
        f"redis-py: {_times(found, 'drain: worker'):.2f} times the worker's CPU of a turn that does nothing",
        f"redis-py: 1/{1 / _times(found, 'drain: rate'):.2f} of the turns a second of one worker",
    )
    return Report(title="client: our own connection to Redis, and redis-py", figures=found.figures(), notes=notes)


def _times(found: Rounds, name: str) -> float:
    return found.times(f"{THEIRS}: {name}", f"{OURS}: {name}")


async def _turn(found: Rounds, plan: Plan) -> None:
    rounds, turns = plan.repeats(ROUNDS), plan.of(160, PEOPLE)
    chats = [[f"r{n}c{i}" for i in range(turns)] for n in range(1 + rounds)]
    with tempfile.TemporaryDirectory(prefix="shoal-bench-") as folder:
        skills = {"SHOAL_AGENT__DIR": str(make_skills(Path(folder) / "agent"))}
        async with AsyncExitStack() as stack:
            on = {}
            for name in SIDES:
                want = Want(ready=True, redis_py=name == THEIRS, settings=skills)
                filled = partial(fill, every=[chat for some in chats for chat in some])
                on[name] = await stack.enter_async_context(stage(Path(folder) / name, want, filled))
                if not plan.quick:
                    async with seated(on[name].address, chats[0], PEOPLE) as table:
                        await table.talk()  # warms up
            for n in range(rounds):
                for name in SIDES if n % 2 else reversed(SIDES):
                    await add_round(found, name, on[name], chats[n + 1])


async def _drain(found: Rounds, plan: Plan) -> None:
    with server() as valkey:
        for n in range(plan.repeats(ROUNDS)):
            for name in SIDES if n % 2 else reversed(SIDES):
                async with emptied(valkey.url) as client:
                    kind = "shoal" if name == OURS else THEIRS
                    cost = await drain(client, valkey.url, kind, 100, 1, plan.of(6000, QUICK_TURNS))
                found.add(f"{name}: drain: rate", "turns/s", cost.rate)
                found.add(f"{name}: drain: worker", "ms CPU a turn", cost.worker_ms)
                found.add(f"{name}: drain: Redis", "ms CPU a turn", cost.redis_ms)
