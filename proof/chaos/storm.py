"""What crashes cost turns that did not cause them, with turns of four seconds: `python -m proof.chaos.storm`.

Without `--kills`: two workers run 80 turns; both are killed, and killed again as soon as all turns run once more. Then
nothing happens any more: every turn was in flight in two crashes, and none is a poison. The same again with workers
that isolate nothing. Promised: at most one and a half times as long.

With `--kills 200`: chats that talk all the time, and every four seconds a worker, a child of a quarantine or a whole
group is killed. Promised: nobody is given up, and all is quiet 20 s after the last kill.

The exit code is 1 when a promise is broken, or anything was lost or answered twice.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import random
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple

import psutil

from proof.chaos.faults import kill_group, kill_worker
from proof.chaos.load import Crowd
from proof.chaos.poison import TOOLS
from proof.chaos.recovery import times_of
from proof.chaos.stage import Row, Stage, perform, stage, zero
from proof.chaos.verdict import debris
from shared.store import keys
from shared.store.client.redis_client import RedisClient
from tests.helpers.openai_server import Answer, ScriptedOpenAI
from tests.helpers.wait import eventually

CRASHES = 2
TURN_S = 4.0
MOST = 1.5
EVERY_S = 4.0
QUIET_S = 20.0
RESTED_S = 90.0
LEASE_S = 5.0


class Storm(NamedTuple):
    """One run: the time until all were answered, the children of quarantines, and what must be 0."""

    seconds: float
    children: int
    wrongs: dict[str, int]


@asynccontextmanager
async def slow_fleet(folder: Path, *, workers: int, **env: str) -> AsyncIterator[Stage]:
    """Workers whose turns take TURN_S."""
    with ScriptedOpenAI() as model:
        model.script(Answer(text="slow but fine", total_s=TURN_S, times=0))
        env |= {"SHOAL_MODEL__NAME": "openai/scripted", "SHOAL_MODEL__API_BASE": model.base_url}
        env |= {"SHOAL_MODEL__API_KEY": "none", "SHOAL_MODEL__CLIENT": "direct"}
        async with stage(folder, workers=workers, lease_s=LEASE_S, env=env, watched=False) as on:
            yield on


def logged(on: Stage, event: str) -> int:
    """How often a worker group logged this."""
    return sum(member.log.count(f'"event": "{event}"') for member in on.fleet.workers)


async def storm(folder: Path, *, turns: int, isolate: bool) -> Storm:
    """Send all at once, kill both workers twice, wait for all answers."""
    folder.mkdir()
    env = {} if isolate else {"PYTHONPATH": str(TOOLS), "NO_QUARANTINE": "1"}
    async with slow_fleet(folder, workers=2, **env) as on:
        crowd = Crowd(on.client, [f"c{i}" for i in range(turns)], lambda chat, n: f"hello {chat}")
        sessions = [chat.session for chat in crowd.chats]
        began = time.monotonic()
        crowd.start(1)
        for crash in range(1, CRASHES + 1):
            await eventually(partial(_all_run, on.client, sessions, crash), within_s=60, every_s=0.02)
            for child in [child for member in on.fleet.workers for child in member.process.children()]:
                with contextlib.suppress(psutil.NoSuchProcess):
                    if "worker.main" in child.cmdline():
                        child.kill()
        never = await crowd.ended()
        seconds = time.monotonic() - began
        return Storm(seconds, logged(on, "quarantined"), await crowd.wrongs() | {"never answered": never})


async def _all_run(client: RedisClient, sessions: Sequence[str], tries: int) -> bool:
    """Whether every turn is at this attempt, or at a later one: while one worker ends, the other takes its turns."""
    found = await client.pipeline([("HGET", keys.session(session), "tries") for session in sessions])
    return all(int(one or 0) >= tries for one in found)


async def storms(folder: Path, *, turns: int) -> Sequence[Row]:
    """Both runs, one after the other."""
    plain = await storm(folder / "plain", turns=turns, isolate=False)
    isolated = await storm(folder / "isolated", turns=turns, isolate=True)
    times = isolated.seconds / plain.seconds
    return [
        Row("turns", turns),
        Row("seconds until all were answered, nothing isolated", plain.seconds),
        Row("seconds until all were answered", isolated.seconds),
        Row("children of the quarantine", isolated.children, isolated.children > 0 == plain.children),
        Row("times as long", times, times <= MOST),
        *zero({name: count + plain.wrongs[name] for name, count in isolated.wrongs.items()}),
    ]


async def hail(
    folder: Path, *, kills: int, chats: int, seed: int, every_s: float = EVERY_S, quiet_s: float = QUIET_S
) -> Sequence[Row]:
    """Kill all the time, then wait until it is quiet."""
    rng = random.Random(seed)
    async with slow_fleet(folder, workers=3) as on:
        crowd = Crowd(on.client, [f"c{i}" for i in range(chats)], lambda chat, n: f"hello {chat} {n}")
        crowd.start()
        done = 0
        while done < kills:
            await asyncio.sleep(every_s)
            on.fleet.keep()
            done += await rng.choice([kill_worker, kill_worker, kill_group])(on.fleet, rng, LEASE_S)
        on.fleet.keep()
        last = time.monotonic()
        never = await crowd.finish()
        took_s = time.monotonic() - last
        # A job of memory rests for a minute after a crash of its worker.
        while (left := await debris(on.client)) and time.monotonic() < last + RESTED_S:
            await asyncio.sleep(0.5)
        waits = times_of([wait for chat in crowd.chats for wait in chat.waits])
        return [
            Row("kills", done),
            Row("answered", sum(len(chat.answered) for chat in crowd.chats)),
            Row("children of quarantines", logged(on, "quarantined")),
            Row("dead letters", logged(on, "dead letter"), not logged(on, "dead letter")),
            Row("seconds from the last kill until all were answered", took_s, took_s <= quiet_s),
            Row("wait, p50 s", waits.p50),
            Row("wait, p99 s", waits.p99),
            Row("wait, max s", waits.worst),
            *zero(await crowd.wrongs() | {"never answered": never}),
            Row("left behind", ", ".join(left) or 0, not left),
        ]


def main() -> int:
    """Run and print."""
    parser = argparse.ArgumentParser(prog="python -m proof.chaos.storm")
    parser.add_argument("--turns", type=int, default=80)
    parser.add_argument("--kills", type=int, default=0)
    parser.add_argument("--chats", type=int, default=60)
    parser.add_argument("--seed", type=int, default=11)
    given = parser.parse_args()
    if given.kills:
        play = partial(hail, kills=given.kills, chats=given.chats, seed=given.seed)
        return perform("hail", play, within_s=300 + 3 * EVERY_S * given.kills)
    return perform("storm", partial(storms, turns=given.turns), within_s=600)


if __name__ == "__main__":
    sys.exit(main())
