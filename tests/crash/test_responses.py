"""Responses of OpenAI's client whose gateways and workers die."""

from __future__ import annotations

from typing import Any

import openai

from shared.store.client.redis_client import RedisClient
from tests.crash.test_api import gateway, sessions, working
from tests.crash.test_worker_death import HELD, WORDS
from tests.gateway.channels.api.asking import asker
from tests.gateway.channels.api.responses.test_background import BACKGROUND, finished
from tests.helpers.fleet import holder
from tests.helpers.fleet_fixtures import Spawn
from tests.helpers.openai_server import ScriptedOpenAI
from tests.helpers.wait import eventually


async def refused(one: openai.AsyncOpenAI, **asked: Any) -> bool:
    """Whether one more response in the background is one too many."""
    try:
        await one.responses.create(**BACKGROUND, **asked)
    except openai.RateLimitError as error:
        return error.code == "background_limit"
    return False


async def two_running(client: RedisClient) -> list[str]:
    found = [name async for name in sessions(client)]
    return found if len(found) == 2 else []


async def test_killed_processes_free_and_take_no_place(
    client: RedisClient, spawn: Spawn, model: ScriptedOpenAI
) -> None:
    """The limit counts turns, not processes: neither a dead gateway nor a dead worker changes it, ended turns do."""
    model.script(HELD)
    await working(spawn, 2)
    first, a = await gateway(spawn, API__BACKGROUND_AT_ONCE="2")
    _, b = await gateway(spawn, API__BACKGROUND_AT_ONCE="2")
    async with asker(a) as one:
        made = [await one.responses.create(**BACKGROUND) for _ in range(2)]
    first.popen.kill()
    async with asker(b) as other:
        assert await refused(other)
        name, _ = await eventually(lambda: two_running(client), within_s=60)
        (await holder(client, name)).kill()
        assert await refused(other)
        model.release()
        for response in made:
            assert (await finished(other, response.id)).output_text == WORDS
        assert [await refused(other) for _ in range(2)] == [False, False]
