"""Suspects in a child of their worker: what ends the child without proving anything, and what reaches a turn in it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import psutil

from shared.store import keys
from shared.store.client.redis_client import RedisClient
from shared.store.turns.inbox import Inbox
from tests.helpers.build import say
from tests.helpers.fleet import replies
from tests.helpers.fleet_fixtures import Spawn
from tests.helpers.openai_server import Answer, ScriptedOpenAI
from tests.helpers.processes import Process
from tests.helpers.wait import eventually

CHILD = "worker.process.quarantine_child"


async def suspects(client: RedisClient, many: int, *, crashes: int = 2) -> list[str]:
    """The sessions of so many messages that were in flight in two crashes."""
    for number in range(many):
        await say(Inbox(client), "slow", chat=f"owner/s{number}", id=f"s{number}")
        await client.command("HSET", keys.session(f"web:owner/s{number}"), "tries", 1, "crashes", crashes)
    return [f"web:owner/s{number}" for number in range(many)]


def children(worker: Process) -> list[psutil.Process]:
    """The children of its quarantine."""
    return [child for child in worker.children() if child.is_running() and CHILD in child.cmdline()]


async def asked(model: ScriptedOpenAI, many: int) -> None:
    """Wait until so many turns wait for their model."""
    await eventually(lambda: len(model.requests()) >= many, within_s=60)


async def answered(client: RedisClient, sessions: list[str]) -> None:
    async def all_have_one() -> bool:
        return [len(await replies(client, session)) for session in sessions] == [1] * len(sessions)

    await eventually(all_have_one, within_s=60, what="all answers")


async def test_a_child_that_is_killed_from_outside_convicts_nobody(
    client: RedisClient, spawn: Spawn, model: ScriptedOpenAI
) -> None:
    """As the kernel kills when the memory that worker and child share is used up. The turn was alone in it; it runs
    again and is answered."""
    model.script(Answer(text="slow but fine", held=True, times=0))
    [session] = await suspects(client, 1)
    worker = spawn("worker", MODEL__CLIENT="direct")
    await asked(model, 1)
    [child] = children(worker)
    child.kill()
    model.release()
    await answered(client, [session])
    assert await replies(client, session) == ["slow but fine"]
    assert await client.command("XLEN", keys.DEAD) == 0


async def test_new_suspects_share_one_child(client: RedisClient, spawn: Spawn, model: ScriptedOpenAI) -> None:
    """Two crashes that hit everybody are no reason for a process for each."""
    model.script(Answer(text="slow but fine", held=True, times=0))
    sessions = await suspects(client, 20)
    worker = spawn("worker", MODEL__CLIENT="direct")
    await asked(model, 20)
    assert len(children(worker)) == 1
    model.release()
    await answered(client, sessions)
    assert worker.log.count('"quarantined"') == 1


async def test_a_child_that_cannot_start_counts_nothing_and_its_turns_run_in_the_worker(
    client: RedisClient, spawn: Spawn, model: ScriptedOpenAI, tmp_path: Path
) -> None:
    """For lack of memory, say. Nobody is passed around or given up for it."""
    (tmp_path / "sitecustomize.py").write_text(f"import os, sys\nif {CHILD!r} in sys.orig_argv: os._exit(1)\n")
    sessions = await suspects(client, 3)
    worker = spawn("worker", MODEL__CLIENT="direct", env={"PYTHONPATH": str(tmp_path)})
    await answered(client, sessions)
    assert worker.log.count('"quarantined"') == 1
    assert [await client.command("HGET", keys.session(session), "spared") for session in sessions] == [None] * 3


async def test_a_stop_ends_an_isolated_turn_and_no_other(
    client: RedisClient, spawn: Spawn, model: ScriptedOpenAI
) -> None:
    """In the middle of its model's answer, while the other one waits for its own."""
    model.script(Answer(text="one two three", held=True, times=0))
    stopped, other = await suspects(client, 2)
    spawn("worker", MODEL__CLIENT="direct")
    await asked(model, 2)
    assert await Inbox(client).stop(stopped)
    await answered(client, [stopped])
    assert await replies(client, stopped) != ["one two three"]
    assert await replies(client, other) == []
    model.release()
    await answered(client, [other])
    assert await replies(client, other) == ["one two three"]


async def test_a_drain_reaches_isolated_turns(client: RedisClient, spawn: Spawn, model: ScriptedOpenAI) -> None:
    """The worker ends when they are answered, and starts nothing new."""
    model.script(Answer(text="slow but fine", held=True, times=0))
    sessions = await suspects(client, 2)
    worker = spawn("worker", MODEL__CLIENT="direct")
    await asked(model, 2)
    worker.terminate()
    await eventually(lambda: "drain" in worker.log, what="a drain")
    model.release()
    assert await asyncio.to_thread(worker.wait, 60) == 0
    assert [len(await replies(client, session)) for session in sessions] == [1, 1]
    assert await client.command("HLEN", keys.leases("turns")) == 0
