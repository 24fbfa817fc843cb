"""Subagents under fire: `python -m proof.chaos.subagents --turns 100 --kills 10`.

Turns that each spawn three subagents run on three workers, and workers are killed at random meanwhile. Every result
must be announced once, no turn may stay without its answers, and nothing may be left behind. Beside them people say
short things: their waits are compared with those of an idle fleet, for the turns that stood on no killed worker. The
exit code is 1 when a promise is broken.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import re
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Coroutine
from pathlib import Path

import msgspec
import psutil

from proof.chaos.recovery import times_of
from proof.chaos.verdict import debris, torn
from shared.embedded import EmbeddedValkey
from shared.messages.transcript import TranscriptEntry, UserEntry
from shared.store import keys
from shared.store.client.redis_client import RedisClient
from shared.store.fleet.presence import list_processes
from shared.store.turns.inbox import Inbox
from tests.helpers.build import say
from tests.helpers.fleet import history, replies, warm, watching
from tests.helpers.openai_server import Answer, Call, ScriptedOpenAI
from tests.helpers.processes import Process
from tests.helpers.wait import eventually

WORKERS = 3
EACH = 3
PROBES_AT_ONCE = 4
STARTED, REPORTED, HELLO = "started", "told", "hi"


class Found(msgspec.Struct):
    """What came of it. Everything but the waits must be as it is here."""

    results: int = 0
    lost: int = 0
    doubled: int = 0
    unanswered: int = 0
    torn: int = 0
    dead: int = 0
    left: tuple[str, ...] = ()
    idle: tuple[float, ...] = ()
    loaded: tuple[float, ...] = ()
    retried: tuple[float, ...] = ()

    @property
    def whole(self) -> bool:
        return not (self.lost or self.doubled or self.unanswered or self.torn or self.dead or self.left)


def script(model: ScriptedOpenAI, turns: int, model_s: float) -> None:
    """Every call of the model takes `model_s`."""
    answers = [
        Answer(match=r"^\[Subagent", text=REPORTED, first_s=model_s, times=0),
        Answer(match="^dig", text="gold", first_s=model_s, times=0),
        Answer(match="^hello", text=HELLO, first_s=model_s, times=0),
        Answer(match="^please", role="tool", text=STARTED, first_s=model_s, times=0),
    ]
    for number in range(turns):
        calls = [Call("spawn", json.dumps({"task": f"dig {number}-{at}"}), f"s{at}") for at in range(EACH)]
        answers.append(Answer(match=f"^please {number}$", calls=calls, first_s=model_s, times=0))
    model.script(*answers)


class Fleet:
    """The workers, and who kills them."""

    def __init__(self, folder: Path, url: str, model: ScriptedOpenAI) -> None:
        env = {
            "SHOAL_WORKER__LEASE_S": "3",
            "SHOAL_REDIS__URL": url,
            "SHOAL_DATA__DIR": str(folder),
            "SHOAL_MODEL__NAME": "openai/scripted",
            "SHOAL_MODEL__API_BASE": model.base_url,
            "SHOAL_MODEL__API_KEY": "none",
            "SHOAL_MODEL__CLIENT": "direct",
        }
        self.members = [Process("worker", env=env, log=folder / f"{at}.log") for at in range(WORKERS)]

    def kill_one(self, rng: random.Random) -> None:
        """SIGKILL to one worker; its guardian lives."""
        living = [child for member in self.members for child in member.children()]
        if living:
            try:
                rng.choice(living).kill()
            except psutil.NoSuchProcess:
                return

    def end(self) -> None:
        for member in self.members:
            if member.alive:
                member.kill_group()


async def probe(client: RedisClient, chat: str) -> tuple[float, bool]:
    """How long a short turn takes, and whether it was begun more than once."""
    session = f"web:{chat}"
    async with watching(client, session) as seen:
        began = time.monotonic()
        await say(Inbox(client), "hello", chat=chat)
        await eventually(lambda: replies(client, session), within_s=120, every_s=0.01)
        return time.monotonic() - began, bool(seen.started_at(2))


async def probes(client: RedisClient, name: str, stop: asyncio.Event, found: list[tuple[float, bool]]) -> None:
    """One person after the other, until `stop`."""
    number = 0
    while not stop.is_set():
        found.append(await probe(client, f"owner/{name}-{number}"))
        number += 1


async def run(folder: Path, url: str, *, turns: int, kills: int, model_s: float, idle_s: float, seed: int) -> Found:
    """Idle first, then under load and kills, then the verdict."""
    rng = random.Random(seed)
    client = RedisClient(url)
    found = Found()
    with ScriptedOpenAI() as model:
        script(model, turns, model_s)
        fleet = Fleet(folder, url, model)
        try:
            await warm(*fleet.members)
            await probe(client, "owner/warm")
            found.idle = tuple(took for took, _ in await _probing(client, "idle", asyncio.sleep(idle_s)))
            loaded = await _probing(client, "load", _load(client, fleet, turns, kills, rng))
            found.loaded = tuple(took for took, again in loaded if not again)
            found.retried = tuple(took for took, again in loaded if again)
            await _judge(client, turns, found)
        finally:
            fleet.end()
            await client.close()
    return found


async def _probing(client: RedisClient, name: str, work: Coroutine[None, None, None]) -> list[tuple[float, bool]]:
    stop, took = asyncio.Event(), list[tuple[float, bool]]()
    people = [asyncio.create_task(probes(client, f"{name}{at}", stop, took)) for at in range(PROBES_AT_ONCE)]
    try:
        await work
    finally:
        stop.set()
        await asyncio.gather(*people)
    return took


async def _load(client: RedisClient, fleet: Fleet, turns: int, kills: int, rng: random.Random) -> None:
    async def kill() -> None:
        for _ in range(kills):
            await asyncio.sleep(rng.uniform(0.5, 1.5))
            fleet.kill_one(rng)

    killing = asyncio.create_task(kill())
    for number in range(turns):
        await say(Inbox(client), f"please {number}", chat=f"owner/p{number}")
        await asyncio.sleep(0.05)
    await killing
    await eventually(lambda: _quiet(client, turns), within_s=300, every_s=0.2, what="the end of all subagents")


async def _quiet(client: RedisClient, turns: int) -> bool:
    names = [keys.inbox(f"web:owner/p{number}") for number in range(turns)]
    return int(await client.command("EXISTS", keys.SUBAGENTS, *names)) == 0


async def _judge(client: RedisClient, turns: int, found: Found) -> None:
    for number in range(turns):
        session = f"web:owner/p{number}"
        entries = await history(client, session)
        result = Counter(
            named[0]
            for entry in entries
            if isinstance(entry, UserEntry) and (named := re.findall(r"Task: (dig \S+)", entry.content))
        )
        wanted = {f"dig {number}-{at}" for at in range(EACH)}
        found.results += sum(result.values())
        found.lost += len(wanted - result.keys())
        found.doubled += sum(times - 1 for times in result.values())
        message = await replies(client, session)
        found.unanswered += (
            message.count(STARTED) != 1 or REPORTED not in message or set(message) != {STARTED, REPORTED}
        )
        found.torn += _torn(entries)
    found.dead = await client.command("XLEN", keys.DEAD)
    await eventually(lambda: _idle(client), within_s=60)
    found.left = tuple(await debris(client))


def _torn(entries: list[TranscriptEntry]) -> int:
    """Turns into which several reports were taken have several questions; else as everywhere."""
    turns = Counter(entry.turn for entry in entries if isinstance(entry, UserEntry))
    joined = {turn for turn, many in turns.items() if many > 1}
    return torn([entry for entry in entries if entry.turn not in joined])


async def _idle(client: RedisClient) -> bool:
    return sum(one.running for one in await list_processes(client) if one.kind == "worker") == 0


def main() -> int:
    """Run it and print what came of it."""
    parser = argparse.ArgumentParser(prog="python -m proof.chaos.subagents")
    parser.add_argument("--turns", type=int, default=100)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--model", type=float, default=2.0, help="seconds that a call of the model takes")
    parser.add_argument("--idle", type=float, default=30.0, help="seconds for which the idle fleet is measured")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="shoal-subagents-"))
    server = EmbeddedValkey(folder / "valkey")
    server.start()
    try:
        found = asyncio.run(
            run(
                folder,
                server.url,
                turns=given.turns,
                kills=given.kills,
                model_s=given.model,
                idle_s=given.idle,
                seed=given.seed,
            )
        )
    finally:
        server.stop()
    shutil.rmtree(folder)
    idle, loaded = times_of(found.idle), times_of(found.loaded)
    quick = loaded.p99 <= 2 * idle.p99
    kept = found.whole and found.results == EACH * given.turns and quick
    sys.stdout.write(
        f"{given.turns} turns with {EACH} subagents each, {given.kills} kills, {WORKERS} workers, {os.cpu_count()} "
        f"cores, seed {given.seed}: {found.results} results announced, {found.lost} lost, {found.doubled} doubled, "
        f"{found.unanswered} turns without their answers, {found.torn} torn histories, {found.dead} dead letters, "
        f"left behind: {', '.join(found.left) or 'nothing'}\n"
        f"interactive p99: idle {idle.p99:.2f} s ({idle.many}), under load {loaded.p99:.2f} s ({loaded.many}), "
        f"on killed workers {max(found.retried, default=0.0):.2f} s at most ({len(found.retried)})\n"
        f"promise {'kept' if kept else 'BROKEN'}\n"
    )
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
