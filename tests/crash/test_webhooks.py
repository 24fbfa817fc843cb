"""Webhooks while gateways and workers are killed: each event is told, in order, under one id and in one form."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import openai
import pytest

from shared.crash_points import VARIABLE
from shared.store import keys
from shared.store.client.redis_client import RedisClient
from tests.crash.test_api import gateway as web_gateway
from tests.gateway.channels.api.asking import asker
from tests.gateway.webhooks.stage import SECRET, Stage, outgoing
from tests.gateway.webhooks.test_outgoing import _nothing_waits
from tests.gateway.webhooks.test_outgoing_faults import assert_equal_forms, of_turns
from tests.helpers.fleet import holder, warm, workers
from tests.helpers.fleet_fixtures import Spawn
from tests.helpers.openai_server import Answer, ScriptedOpenAI
from tests.helpers.processes import Process
from tests.helpers.wait import eventually
from tests.helpers.web_server import Asked, Send, WebServer, reply

CALLS = {"before_fan_out": 1, "after_fan_out": 1, "before_post": 1, "after_post": 2, "after_sent": 1}
"""How often the program is called with the event in whose delivery the gateway dies at a point."""


async def hooks(spawn: Spawn, web: WebServer, armed: Path | None = None) -> Process:
    """A gateway of webhooks alone."""
    made = spawn(
        "gateway",
        "hook",
        env={VARIABLE: str(armed)} if armed else {},
        WORKER__LEASE_S="1",
        DELIVERY__CALL_S="2",
        WEBHOOKS__OUT__ERP__URL=web.url("/hook"),
        WEBHOOKS__OUT__ERP__SECRET=SECRET,
        WEBHOOKS__OUT__ERP__ALLOW_PRIVATE="true",
    )
    await eventually(lambda: "endpoints served" in made.log, within_s=60)
    return made


async def is_open(stage: Stage) -> bool:
    return bool(await stage.client.command("EXISTS", keys.NOTICES))


@pytest.mark.parametrize("point", CALLS)
async def test_a_gateway_killed_at_each_point_leaves_the_event_to_the_next(
    redis_url: str, spawn: Spawn, tmp_path: Path, point: str
) -> None:
    """In the first, the middle and the last of three."""
    async with outgoing(redis_url, tmp_path) as s:
        armed = tmp_path / "crash"
        gateway = await hooks(spawn, s.program.web, armed)
        await eventually(lambda: is_open(s))
        for number in (1, 2, 3):
            await eventually(lambda: _nothing_waits(s), within_s=30)
            before = len(s.program.calls)
            armed.write_text(f"{point} 1")
            await s.turn()
            await eventually(lambda: not armed.exists(), within_s=30)
            gateway.wait()
            gateway = await hooks(spawn, s.program.web, armed)
            await eventually(lambda: _nothing_waits(s), within_s=30)
            assert len(s.program.calls) - before == CALLS[point]
            assert of_turns(s) == [*range(1, number + 1)]
        assert len(set(s.program.ids)) == 3
        assert_equal_forms(s)


async def test_events_of_many_turns_survive_whatever_dies(redis_url: str, spawn: Spawn, tmp_path: Path) -> None:
    """Two gateways that are killed again and again, and a program that hangs, dies, answers 500 and asks for time."""
    draw = random.Random(7)

    async def dies(_: Asked, send: Send) -> None:
        raise ConnectionError

    async def hangs(_: Asked, send: Send) -> None:
        await asyncio.get_running_loop().create_future()

    async def badly(asked: Asked, send: Send) -> None:
        kinds = (dies, hangs, reply(status=500), reply(status=503, Retry_After="1"), *[reply()] * 12)
        await draw.choice(kinds)(asked, send)

    async with outgoing(redis_url, tmp_path) as s:
        s.program.web.pages["/hook"] = badly
        gateways = [await hooks(spawn, s.program.web) for _ in range(2)]
        await eventually(lambda: is_open(s))
        for number in range(1, 61):
            await s.turn()
            if number % 10 == 0:
                await s.program.called(number // 3)
                victim = gateways.pop(0)
                victim.kill_group()
                gateways.append(await hooks(spawn, s.program.web))
        s.program.web.pages["/hook"] = reply()
        # A call that hangs ends with its gateway.
        for victim in gateways:
            victim.kill_group()
        await hooks(spawn, s.program.web)
        await eventually(lambda: _nothing_waits(s), within_s=60, what="all events")
        assert of_turns(s) == [*range(1, 61)]
        assert len(set(s.program.ids)) == 60
        assert_equal_forms(s)
        assert await s.letters() == []


async def test_the_end_of_a_response_in_the_background_arrives_though_everything_died(
    redis_url: str, client: RedisClient, spawn: Spawn, model: ScriptedOpenAI, tmp_path: Path
) -> None:
    """The worker that answered, the gateway that was asked, and that of the webhooks."""
    model.script(Answer(match="report", text="A long report. " * 20, delta_s=0.05, times=0))
    async with outgoing(redis_url, tmp_path) as s:
        gateway = await hooks(spawn, s.program.web)
        await eventually(lambda: is_open(s))
        worker = spawn("worker", MODEL__CLIENT="direct", WORKER__LEASE_S="2")
        await workers(client, 1)
        await warm(worker)
        web, address = await web_gateway(spawn)
        async with asker(address) as ask:
            begun = await ask.responses.create(model="shoal", input="report", background=True)
            session = (await client.command("KEYS", f"{keys.responses('')}*"))[0].decode()
            await holder(client, session.removeprefix(keys.responses("")))
            for process in (web, worker, gateway):
                process.kill_group()
        await warm(spawn("worker", MODEL__CLIENT="direct", WORKER__LEASE_S="2"))
        await hooks(spawn, s.program.web)
        await s.program.called(2)
        events = {event["type"]: event["data"] for event in s.program.events}
        assert events["response.completed"] == {"id": begun.id}
        assert events["turn.completed"]["turn"] == 1
        _, address = await web_gateway(spawn)
        async with asker(address) as ask:
            assert (await ask.responses.retrieve(begun.id)).status == "completed"
        known = openai.OpenAI(api_key="none", webhook_secret=SECRET).webhooks
        [call] = [asked for asked in s.program.calls if b"response." in asked.body]
        unwrapped = known.unwrap(call.body, call.headers)
        assert unwrapped.type == "response.completed"
        assert unwrapped.data.id == begun.id
