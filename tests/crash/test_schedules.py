"""Schedules and real workers: run on time, each tick once, also when a worker is killed or stopped at it."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest

from shared.crash_points import VARIABLE
from shared.messages.outbound import OutboundMessage
from shared.messages.schedule import EveryPlan, ScheduleStatus
from shared.messages.transcript import AssistantEntry
from shared.settings import CronSettings
from shared.store import keys
from shared.store.client.redis_client import RedisClient
from shared.store.delivery.outbox import Outbox
from shared.store.schedules.schedules import Schedules
from shared.store.turns.inbox import Inbox
from tests.helpers.build import say
from tests.helpers.fleet import history, replies, warm, workers
from tests.helpers.fleet_fixtures import Spawn
from tests.helpers.openai_server import Answer, Call, ScriptedOpenAI
from tests.helpers.processes import ROOT, Process
from tests.helpers.schedules import left, schedule, server_ms
from tests.helpers.wait import eventually

SESSION = "web:owner/a"
SETTINGS = CronSettings(min_every_s=0.5)
WRONG_CLOCK = """
import time

real_ns, real = time.time_ns, time.time
time.time_ns = lambda: real_ns() + {ahead_s} * 10**9
time.time = lambda: real() + {ahead_s}
"""


def start(spawn: Spawn, env: dict[str, str] | None = None, **settings: str) -> Process:
    return spawn("worker", env=env, MODEL__CLIENT="direct", CRON__MIN_EVERY_S="0.5", AGENT__TIMEZONE="UTC", **settings)


async def ticks(client: RedisClient) -> list[int]:
    """The ticks that were answered in the chat, in the order of their answers."""
    rows = await Outbox(client).read_after(SESSION, after=0, limit=2000)
    lines = [row.line for row in rows if isinstance(row.line, OutboundMessage)]
    assert all(line.kind == "reply" and len(line.in_reply_to) == 1 for line in lines)
    return [int(line.in_reply_to[0].partition(":")[2]) for line in lines]


async def every_second(client: RedisClient, *, misfire: str = "all") -> int:
    """Plan something for every second; the first tick."""
    now = await server_ms(client)
    one = msgspec.structs.replace(schedule(plan=EveryPlan(1000, now)), misfire=misfire)
    await Schedules(client, SETTINGS).add(one, now + 1000)
    return now + 1000


async def test_what_a_person_asked_for_is_planned_and_runs_until_they_end_it(
    client: RedisClient, spawn: Spawn, model: ScriptedOpenAI
) -> None:
    """One worker: the model plans by the tool, each tick is a turn with an answer in the chat, and no one is asked."""
    wanted = msgspec.json.encode({"action": "add", "message": "count the birds", "every_seconds": 1}).decode()
    model.script(
        Answer(match="plan it", role="user", calls=[Call("cron", wanted)], times=0),
        Answer(match="plan it", role="tool", text="planned", times=0),
    )
    worker = start(spawn)
    await warm(worker)
    await say(Inbox(client), "plan it")
    await eventually(lambda: _many(client, 4), within_s=30, what="three ticks that are answered")
    first, *others = await replies(client, SESSION)
    assert first == "planned"
    assert all("count the birds" in text for text in others)
    [standing] = await Schedules(client).of_session(SESSION)
    assert standing.runs >= 3
    await Schedules(client).remove(SESSION, standing.schedule.id)
    await eventually(lambda: _idle(client), within_s=60)
    assert await left(client) == []


@pytest.mark.parametrize("ahead_s", [3600, -3600])
async def test_plans_follow_the_clock_of_the_server_whatever_the_worker_believes(
    client: RedisClient, spawn: Spawn, model: ScriptedOpenAI, tmp_path: Path, ahead_s: int
) -> None:
    """The clock of the worker's machine is an hour off: what is planned for in a minute, in half an hour and at each
    heartbeat comes then, and the model is told the right time."""
    (tmp_path / "sitecustomize.py").write_text(WRONG_CLOCK.format(ahead_s=ahead_s))
    now_s = await server_ms(client) // 1000
    at = f"{datetime.fromtimestamp(now_s + 1800, UTC):%Y-%m-%d %H:%M:%S}"
    plans = [{"action": "add", "message": "once", "at": at}, {"action": "add", "message": "often", "every_seconds": 60}]
    calls = [Call("cron", msgspec.json.encode(plan).decode()) for plan in plans]
    model.script(
        Answer(match="plan it", role="user", calls=[*calls, *write("- water the plants")], times=0),
        Answer(match="plan it", role="tool", text="planned", times=0),
    )
    worker = start(spawn, {"PYTHONPATH": f"{tmp_path}:{ROOT}"}, HEARTBEAT__EVERY_MIN="30")
    await warm(worker)
    await say(Inbox(client), "plan it")
    await eventually(lambda: _many(client, 1), within_s=30)
    standing = await eventually(lambda: _planned(client, 3), within_s=60)
    passed_s = await server_ms(client) // 1000 - now_s
    first_s = {one.schedule.text: one.next_ms / 1000 - now_s for one in standing}
    assert first_s["once"] == 1800
    assert 60 <= first_s["often"] <= 61 + passed_s
    assert 1800 <= first_s["(HEARTBEAT.md)"] <= 1801 + passed_s
    shown = {f"{datetime.fromtimestamp(now_s + s, UTC):Current time: %Y-%m-%d %H:%M}" for s in (0, passed_s)}
    assert any(text in str(model.requests()[0].body) for text in shown)


@pytest.mark.parametrize("point", ["before_fire", "after_fire"])
async def test_a_worker_that_is_killed_at_a_tick_loses_and_doubles_none(
    client: RedisClient, spawn: Spawn, tmp_path: Path, point: str
) -> None:
    """Killed on one side of the step or the other: the ticks that follow each other are all answered, once."""
    armed = tmp_path / "crash"
    armed.write_text(f"{point} 2")
    await warm(start(spawn, {VARIABLE: str(armed)}))
    first = await every_second(client)
    await eventually(lambda: _answered(client, 6), within_s=60, what="six ticks that are answered")
    assert not armed.exists(), "a worker was killed"
    await _end(client)
    answered = await ticks(client)
    assert answered == [first + 1000 * number for number in range(len(answered))]


async def test_a_worker_that_was_stopped_for_longer_than_its_lease_doubles_no_tick(
    client: RedisClient, spawn: Spawn
) -> None:
    """Three workers at the ticks of every second; one is stopped and goes on later with what it had seen."""
    fleet = [start(spawn, WORKER__LEASE_S="2") for _ in range(3)]
    await workers(client, 3)
    await warm(*fleet)
    first = await every_second(client)
    await eventually(lambda: _answered(client, 2), within_s=30)
    os.killpg(fleet[0].pid, signal.SIGSTOP)
    try:
        before = len(await ticks(client))
        await eventually(lambda: _answered(client, before + 5), within_s=60, what="five more ticks, without the one")
    finally:
        os.killpg(fleet[0].pid, signal.SIGCONT)
    before = len(await ticks(client))
    await eventually(lambda: _answered(client, before + 3), within_s=60)
    await _end(client)
    answered = await ticks(client)
    assert answered == [first + 1000 * number for number in range(len(answered))]


def write(content: str) -> list[Call]:
    arguments = {"path": "HEARTBEAT.md", "content": content}
    return [Call("write_file", msgspec.json.encode(arguments).decode())]


async def test_a_heartbeat_comes_with_its_file_and_goes_with_it(
    client: RedisClient, spawn: Spawn, model: ScriptedOpenAI
) -> None:
    """The agent writes the file, and is given what it says again and again; nobody is told that nothing was needed, and
    nothing of that is kept. An empty file ends it."""
    model.script(
        Answer(match="begin", role="user", calls=write("- water the plants"), times=0),
        Answer(match="begin", role="tool", text="begun", times=0),
        Answer(match="enough", role="user", calls=write(""), times=0),
        Answer(match="enough", role="tool", text="ended", times=0),
        Answer(match="water the plants", text="HEARTBEAT_OK", times=2),
        Answer(match="water the plants", text="They are dry!", times=1),
        Answer(match="water the plants", text="HEARTBEAT_OK", times=0),
    )
    await warm(start(spawn, HEARTBEAT__EVERY_MIN="0.01"))
    await say(Inbox(client), "begin")
    await eventually(lambda: _reported(client, ["begun", "They are dry!"]), within_s=30, what="the third heartbeat")
    kept = await history(client, SESSION)
    assert not any("HEARTBEAT_OK" in str(entry) for entry in kept if isinstance(entry, AssistantEntry))
    await say(Inbox(client), "enough")
    await eventually(lambda: _gone(client), within_s=30, what="the end of the heartbeat")
    assert (await _shown(client))[-1] == "ended"


async def _shown(client: RedisClient) -> list[str]:
    """The replies that have a text: one without is not shown."""
    return [text for text in await replies(client, SESSION) if text]


async def _reported(client: RedisClient, wanted: list[str]) -> bool:
    return await _shown(client) == wanted


async def _gone(client: RedisClient) -> bool:
    return await left(client) == [] and await _idle(client)


async def _many(client: RedisClient, wanted: int) -> bool:
    return len(await replies(client, SESSION)) >= wanted


async def _planned(client: RedisClient, many: int) -> Sequence[ScheduleStatus]:
    """The schedules of the chat, once there are as many as that."""
    standing = await Schedules(client).of_session(SESSION)
    return standing if len(standing) == many else ()


async def _answered(client: RedisClient, wanted: int) -> bool:
    return len(await ticks(client)) >= wanted


async def _idle(client: RedisClient) -> bool:
    return not await client.command("EXISTS", keys.inbox(SESSION))


async def _end(client: RedisClient) -> None:
    await Schedules(client).remove(SESSION, "aa")
    await eventually(lambda: _idle(client), within_s=30)
