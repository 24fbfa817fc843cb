"""Whether cost grows with work only: one worker and two, 10 to 100,000 idle sessions, 1 to 100 idle workers.

Turns that do nothing, so that nothing hides what the fleet itself costs. Beside idle sessions eight chats talk, beside
idle workers one, each as soon as it is answered. The sessions are idle after one turn (`copies`). The workers are
processes with the lease loop of turns and nothing else, forks of one that has imported everything; whichever wakes
takes the turn. What they use while nothing happens is measured before and taken off.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

import msgspec
import uvloop

from proof.bench import noop
from proof.bench.copies import copy_sessions
from proof.bench.drain import QUICK_TURNS, drain
from proof.bench.plan import Plan
from proof.bench.server import calls, cpu_s, emptied, server
from proof.bench.table import Report, Rounds, quantile
from proof.bench.waves import waves
from shared.store.client.redis_client import RedisClient

ROUNDS: Final = 5
CHATS: Final = 8
WARM: Final = 20
"""Turns of each worker before those that count."""

ONE_CHAT: Final = 1
"""Turns that come together share commands on one worker and not on ten; here that would look like growth."""


def measure(plan: Plan) -> Report:
    """What grows, and what does not."""
    found = Rounds()
    uvloop.run(_measure(found, plan))
    return Report(
        title="scale: what a turn costs in a small and a large fleet",
        figures=found.figures(),
        notes=_notes(found, plan),
    )


def _sessions(plan: Plan) -> tuple[int, ...]:
    return plan.of((10, 1000, 100_000), (10, 1000))


def _idle_workers(plan: Plan) -> tuple[int, ...]:
    return plan.of((1, 10, 100), (1, 4))


async def _measure(found: Rounds, plan: Plan) -> None:
    with server() as valkey:
        for _ in range(plan.repeats(ROUNDS)):
            for many in (1, 2):
                async with emptied(valkey.url) as client:
                    cost = await drain(client, valkey.url, "shoal", 100, many, plan.of(6000, QUICK_TURNS))
                    found.add(f"{many} busy: rate", "turns/s", cost.rate)
            for sessions in _sessions(plan):
                async with emptied(valkey.url) as client:
                    await copy_sessions(client, sessions)
                    await _turns(found, plan, client, valkey.url, f"{sessions:,} sessions", 1, CHATS)
            for idle in _idle_workers(plan):
                async with emptied(valkey.url) as client:
                    await _turns(found, plan, client, valkey.url, f"{idle} workers", idle, ONE_CHAT)


class _Used(msgspec.Struct, frozen=True):
    workers_s: float
    redis_s: float
    commands: int


async def _turns(found: Rounds, plan: Plan, client: RedisClient, url: str, name: str, many: int, chats: int) -> None:
    with noop.workers("shoal", url, 100, many) as pool:
        async with waves(client, [f"busy{n}" for n in range(chats)]) as sea:

            async def used() -> _Used:
                return _Used(pool.cpu_s, await cpu_s(client), await calls(client))

            idle_s, for_s, warm = plan.of(3.0, 0.2), plan.of(4.0, 0.2), plan.of(WARM, 1)
            await sea.wave(chats)
            at_rest = [await used()]
            await asyncio.sleep(idle_s)
            at_rest.append(await used())
            async with sea.talking(chats) as seconds:
                while len(seconds) < warm * many:  # a fork copies what it touches first
                    await asyncio.sleep(0.05)
                at_work, before = [await used()], len(seconds)
                await asyncio.sleep(for_s)
                while len(seconds) == before:  # a quick round may be over before the first turn
                    await asyncio.sleep(0.05)
                at_work.append(await used())
                turns, times = len(seconds) - before, seconds[before:]

            def cost(of: Callable[[_Used], float]) -> tuple[float, float]:
                """A second at rest, and a turn without that."""
                rest = (of(at_rest[1]) - of(at_rest[0])) / idle_s
                return rest, (of(at_work[1]) - of(at_work[0]) - rest * for_s) / turns

            workers, redis = cost(lambda one: one.workers_s * 1000), cost(lambda one: one.redis_s * 1000)
            commands = cost(lambda one: one.commands)
            found.add(f"{name}: workers", "ms CPU a turn", workers[1])
            found.add(f"{name}: Redis", "ms CPU a turn", redis[1])
            found.add(f"{name}: all", "ms CPU a turn", workers[1] + redis[1])
            found.add(f"{name}: commands, inside of scripts too", "a turn", commands[1])
            found.add(f"{name}: push to reply p50", "ms", quantile(times, 0.5) * 1000)
            found.add(f"{name}: idle workers", "ms CPU a second", workers[0])
            found.add(f"{name}: idle Redis", "ms CPU a second", redis[0])
            found.add(f"{name}: idle commands, inside of scripts too", "a second", commands[0])


def _notes(found: Rounds, plan: Plan) -> tuple[str, ...]:
    def grown(few: str, many: str) -> str:
        ratios = [
            found.times(f"{many}: {what}", f"{few}: {what}") for what in ("all", "commands, inside of scripts too")
        ]
        return f"{few} to {many}: a turn's CPU x {ratios[0]:.2f}, its commands x {ratios[1]:.2f}"

    sessions, idle = _sessions(plan), _idle_workers(plan)
    return (
        f"a second busy worker: {found.times('2 busy: rate', '1 busy: rate'):.2f} times one",
        grown(f"{sessions[0]:,} sessions", f"{sessions[-1]:,} sessions"),
        grown(f"{idle[0]} workers", f"{idle[-1]} workers"),
        grown(f"{idle[1]} workers", f"{idle[-1]} workers"),
    )
