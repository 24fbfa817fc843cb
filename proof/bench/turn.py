"""Our own CPU for one whole turn, by process and by part, the client of models apart.

A message comes over a WebSocket and its reply goes back there; the prompt has 20 skills, the conversation 40 messages
(21 kB), the reply 50 pieces that come together; 8 people talk at once. One side has a model that is no further than a
function call, the other the direct client and a model server: the difference is what that client costs. In a round of
its own a sampler looks where the time goes.
"""

from __future__ import annotations

import asyncio
import statistics
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Final

from proof.bench import parts, sampler
from proof.bench.chats import seated
from proof.bench.plan import Plan
from proof.bench.sessions import WORDS, history, make_sessions
from proof.bench.stage import Stage, Want, stage
from proof.bench.table import Figure, Report, Rounds, quantile
from shared.store.client.redis_client import RedisClient

ROUNDS: Final = 5
PEOPLE: Final = 8
SKILLS: Final = 20
MESSAGES: Final = 40
SIDES: Final = {"no client": True, "direct client": False}
PROCESSES: Final = ("gateway", "worker", "Redis")


def measure(plan: Plan) -> Report:
    """What a turn costs, and where."""
    return asyncio.run(_measure(plan))


async def _measure(plan: Plan) -> Report:
    rounds, turns = plan.repeats(ROUNDS), plan.of(160, 16)
    sampled = plan.of(12, 1)
    # Each round has chats of its own, so that no conversation is longer than another; the first warms up.
    chats = {n: [f"r{n}c{i}" for i in range(turns)] for n in range(1 + rounds + sampled)}
    found = Rounds()
    with tempfile.TemporaryDirectory(prefix="shoal-bench-") as folder:
        skills = make_skills(Path(folder) / "agent")
        async with AsyncExitStack() as stack:
            filled = partial(fill, every=[chat for some in chats.values() for chat in some])
            on = {
                name: await stack.enter_async_context(
                    stage(Path(folder) / name, Want(ready=ready, settings={"SHOAL_AGENT__DIR": str(skills)}), filled)
                )
                for name, ready in SIDES.items()
            }
            for side in on.values() if not plan.quick else ():
                async with seated(side.address, chats[0], PEOPLE) as table:
                    await table.talk()  # warms up
            for n in range(1, rounds + 1):
                for name, side in on.items():
                    await add_round(found, name, side, chats[n])
            seen: list[dict[str, sampler.Stacks]] = []
            for n in range(rounds + 1, rounds + 1 + sampled):
                async with seated(on["no client"].address, chats[n], PEOPLE) as table:
                    async with on["no client"].sampled() as found_here:
                        await table.talk()
                seen.append(found_here)
    figures, stacks = found.figures(), sampler.added(seen)
    return Report(
        title="turn: CPU of one whole turn",
        figures=(*figures, *_parts(figures, stacks)),
        notes=_notes(figures, stacks),
    )


async def fill(client: RedisClient, every: Sequence[str]) -> None:
    await make_sessions(client, every, history(MESSAGES))


async def add_round(found: Rounds, name: str, on: Stage, chats: Sequence[str]) -> None:
    async with seated(on.address, chats, PEOPLE) as table:
        before = await on.used()
        seconds = await table.talk()
        after = await on.used()
    used = {part: (after[part] - before[part]) / len(chats) for part in before}
    for part in PROCESSES:
        found.add(f"{name}: {part}", "ms CPU a turn", used[part] * 1000)
    found.add(f"{name}: all", "ms CPU a turn", sum(used[part] for part in PROCESSES) * 1000)
    found.add(f"{name}: commands, inside of scripts too", "a turn", used["commands"])
    found.add(f"{name}: push to reply p50", "ms", quantile(seconds, 0.5) * 1000)
    if name == "direct client":
        found.add("model server", "ms CPU a turn", used["model server"] * 1000)


def make_skills(agent: Path) -> Path:
    """An operator's folder: AGENTS.md and 20 skills, one of them always in the prompt."""
    for n in range(SKILLS):
        folder = agent / "skills" / f"skill-{n}"
        folder.mkdir(parents=True)
        always = "always: true\n" if n == 0 else ""
        folder.joinpath("SKILL.md").write_text(
            f"---\nname: skill-{n}\ndescription: {WORDS.strip()}\n{always}---\n\n{WORDS * 20}\n"
        )
    agent.joinpath("AGENTS.md").write_text(WORDS * 20)
    return agent


def _parts(figures: Sequence[Figure], seen: Mapping[str, sampler.Stacks]) -> list[Figure]:
    """Milliseconds of each part: its share of the samples of what its process uses."""
    whole = {figure.name: figure.median for figure in figures}
    return [
        Figure(f"{process}: {part}", "ms CPU a turn", (share * whole[f"no client: {process}"],))
        for process, stacks in seen.items()
        for part, share in sampler.shares(stacks, parts.RULES[process]).items()
    ]


def _notes(figures: Sequence[Figure], seen: Mapping[str, sampler.Stacks]) -> tuple[str, ...]:
    whole = {figure.name: statistics.median(figure.values) for figure in figures}
    client = whole["direct client: worker"] - whole["no client: worker"]
    lines = [
        f"our own CPU, gateway, worker and Redis: {whole['no client: all']:.2f} ms a turn",
        f"the direct client with its connection: {client:.2f} ms a turn more",
    ]
    for process, stacks in seen.items():
        samples = sum(stacks.values())
        lines.append(f"where {process} is ({samples} samples): share with what it calls, share of itself")
        lines += [f"  {within:6.1%} {own:6.1%}  {name}" for name, within, own in sampler.hot(stacks, 40)]
    return tuple(lines)
