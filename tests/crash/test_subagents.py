"""Subagents on real workers: killed, stopped, waited for, put together."""

from __future__ import annotations

import json

from shared.messages.transcript import ToolEntry, UserEntry
from shared.store import keys
from shared.store.client.redis_client import RedisClient
from shared.store.fleet.presence import list_processes
from shared.store.subagents.subagents import Subagents
from shared.store.turns.inbox import Inbox
from tests.helpers.build import say
from tests.helpers.children import Parent, end, take
from tests.helpers.fleet import history, holder, replies, warm
from tests.helpers.fleet_fixtures import Spawn
from tests.helpers.openai_server import Answer, Call, ScriptedOpenAI
from tests.helpers.wait import eventually

SESSION = "web:owner/a"


def asked(*tasks: str, wait: bool = False) -> list[Call]:
    return [
        Call("spawn", json.dumps({"task": task, "label": task, "wait": wait}), f"spawn{at}")
        for at, task in enumerate(tasks)
    ]


async def reported(client: RedisClient, session: str = SESSION) -> list[str]:
    """The reports that came into the conversation."""
    entries = await history(client, session)
    return [entry.content for entry in entries if isinstance(entry, UserEntry) and "[Subagent" in entry.content]


async def quiet(client: RedisClient, session: str = SESSION) -> bool:
    """Whether nothing waits, nothing runs, and no subagent is open."""
    names = [keys.inbox(session), keys.ledger(session), keys.SUBAGENTS, keys.leases("turns"), keys.leases("jobs")]
    return int(await client.command("EXISTS", *names)) == 0


async def test_results_that_arrive_together_make_one_answer(
    client: RedisClient, spawn: Spawn, model: ScriptedOpenAI
) -> None:
    """They are taken into one turn at its start."""
    model.script(Answer(match=r"^\[Subagent", text="both are done", times=0))
    parent = await Parent.begin(client)
    await parent.spawn("one", "two")
    for claim in await take(client):
        await end(client, claim)
    await parent.commit()
    spawn("worker", MODEL__CLIENT="direct")
    await eventually(lambda: quiet(client), within_s=60)
    assert await replies(client, SESSION) == ["started", "both are done"]
    assert len(await reported(client)) == 2
    assert len(model.requests()) == 1


async def test_waiting_for_several_they_run_at_once_and_nothing_is_reported(
    client: RedisClient, spawn: Spawn, model: ScriptedOpenAI
) -> None:
    """The results are the tools' results, in the order of the calls."""
    model.script(
        Answer(match="^dig one", held=True, text="gold", times=0),
        Answer(match="^dig two", held=True, text="silver", times=0),
        Answer(match="^please", role="tool", text="gold and silver", times=0),
        Answer(match="^please", calls=asked("dig one", "dig two", wait=True), times=0),
    )
    await warm(spawn("worker", MODEL__CLIENT="direct"))
    await say(Inbox(client), "please")
    await eventually(lambda: model.stats()["open"] == 2, what="both subagents at once")
    model.release()
    await eventually(lambda: quiet(client), within_s=60)
    assert await replies(client, SESSION) == ["gold and silver"]
    results = [entry.content for entry in await history(client, SESSION) if isinstance(entry, ToolEntry)]
    assert [text.rpartition("\n")[2] for text in results] == ["gold", "silver"]
    assert await reported(client) == []


async def test_a_worker_killed_while_its_turn_waits_is_replaced_by_one_that_waits_for_the_same(
    client: RedisClient, spawn: Spawn, model: ScriptedOpenAI
) -> None:
    """The successor spawns nothing anew: one result, in the tool's answer, and no report."""
    model.script(
        Answer(match="^dig", held=True, text="gold", times=0),
        Answer(match="^please", role="tool", text="it is gold", times=0),
        Answer(match="^please", calls=asked("dig", wait=True), times=0),
    )
    turns, work = spawn("worker", "turns", MODEL__CLIENT="direct"), spawn("worker", "jobs", MODEL__CLIENT="direct")
    await warm(turns, work)
    await say(Inbox(client), "please")
    await eventually(lambda: _running(client), within_s=60)
    killed = await holder(client, SESSION)
    killed.kill()

    async def replaced() -> bool:
        return bool((await holder(client, SESSION)).pid != killed.pid)

    await eventually(replaced, within_s=60, what="another worker with the turn")
    model.release()
    await eventually(lambda: quiet(client), within_s=60)
    assert await replies(client, SESSION) == ["it is gold"]
    assert await reported(client) == []
    assert len(await Subagents(client).of_session(SESSION)) == 1


async def test_a_stop_reaches_a_turn_that_waits_and_its_subagent_elsewhere(
    client: RedisClient, spawn: Spawn, model: ScriptedOpenAI
) -> None:
    """Both end at once, on whichever worker they run, and nothing is reported."""
    model.script(
        Answer(match="^dig", fault="hang", times=0),
        Answer(match="^please", calls=asked("dig", wait=True), times=0),
    )
    turns, work = spawn("worker", "turns", MODEL__CLIENT="direct"), spawn("worker", "jobs", MODEL__CLIENT="direct")
    await warm(turns, work)
    await say(Inbox(client), "please")
    await eventually(lambda: _running(client), within_s=60)
    await Inbox(client).stop(SESSION)
    await eventually(lambda: quiet(client))
    await eventually(lambda: '"outcome": "cancelled"' in work.log)
    assert await eventually(lambda: _idle(client))
    assert await reported(client) == []


async def test_one_that_stood_in_two_crashes_runs_isolated_and_reports(
    client: RedisClient, spawn: Spawn, model: ScriptedOpenAI
) -> None:
    """In a process of its own, under the lease of its worker, as a turn would."""
    model.script(
        Answer(match=r"^\[Subagent", text="it found gold", times=0),
        Answer(match="^look", text="gold", times=0),
    )
    parent = await Parent.begin(client)
    await parent.spawn("aaaaaaaa")
    await parent.commit()
    await client.command("HSET", keys.child("aaaaaaaa"), "crashes", 2)
    worker = spawn("worker", MODEL__CLIENT="direct")
    await eventually(
        lambda: quiet(client), within_s=60, what=lambda: f"an end of this worker's work:\n{worker.log}\nIt"
    )
    assert (await replies(client, SESSION))[-1] == "it found gold"
    assert '"event": "quarantined"' in worker.log


async def _running(client: RedisClient) -> bool:
    return any(child.state == "running" for child in await Subagents(client).of_session(SESSION))


async def _idle(client: RedisClient) -> bool:
    return sum(one.running for one in await list_processes(client) if one.kind == "worker") == 0
