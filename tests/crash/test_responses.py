"""Responses of OpenAI's client whose gateways and workers die."""

from __future__ import annotations

import asyncio
from typing import Any

import openai

from shared.store import keys
from shared.store.client.redis_client import RedisClient
from tests.crash.test_api import KEY, gateway, sessions, working
from tests.crash.test_worker_death import HELD, WORDS
from tests.gateway.channels.api.asking import asker, post, user
from tests.gateway.channels.api.responses.test_background import BACKGROUND, finished
from tests.helpers.fleet import history, holder
from tests.helpers.fleet_fixtures import Spawn
from tests.helpers.openai_server import Answer, ScriptedOpenAI
from tests.helpers.wait import eventually


async def refused(one: openai.AsyncOpenAI, **asked: Any) -> bool:
    """Whether one more response in the background is one too many."""
    try:
        await one.responses.create(**BACKGROUND, **asked)
    except openai.RateLimitError as error:
        return error.code == "background_limit"
    return False


async def test_a_fork_survives_its_gateway_and_its_worker(
    client: RedisClient, spawn: Spawn, model: ScriptedOpenAI
) -> None:
    """Both are killed while it runs: asked again under its key at another gateway it is one response of one session,
    with the conversation up to the response that it continues, which the other branch does not know."""
    model.script(Answer(match="^fork", text=WORDS, delta_s=0.05, held_after=45, times=0), Answer(text="yes", times=0))
    await working(spawn, 2)
    first, a = await gateway(spawn)
    _, b = await gateway(spawn)
    body = {"model": "shoal", "input": "fork"}
    async with asker(a) as one, asker(b) as other:
        root = await one.responses.create(model="shoal", input="root")
        left = await one.responses.create(model="shoal", input="left", previous_response_id=root.id)
        body["previous_response_id"] = root.id
        asked = asyncio.create_task(post(a, body, path="/v1/responses", headers=KEY))
        await eventually(lambda: model.stats()["open"], within_s=60)
        first.popen.kill()
        [name] = [key async for key in sessions(client)]
        await asyncio.wait([asked])
        again = asyncio.create_task(post(b, body, path="/v1/responses", headers=KEY))
        (await holder(client, name)).kill()
        model.release()
        fork = (await again).json
        assert (fork["status"], fork["output"][0]["content"][0]["text"]) == ("completed", WORDS)
        last = await other.responses.create(model="shoal", input="and?", previous_response_id=fork["id"])
        assert last.output_text == "yes"
        more = await other.responses.create(model="shoal", input="more", previous_response_id=left.id)
        assert more.output_text == "yes"
    texts = [one.content for one in await history(client, name)]
    assert texts == ["root", "yes", "fork", WORDS, "and?", "yes"]
    talk = [(one["role"], one["content"]) for one in model.requests()[-1].body["messages"][1:-1]]
    assert talk == [("user", "root"), ("assistant", "yes"), ("user", "left"), ("assistant", "yes")]


async def test_a_conversation_survives_its_gateway_and_its_worker(
    client: RedisClient, spawn: Spawn, model: ScriptedOpenAI
) -> None:
    """Begun, added to and asked through a gateway that is killed, and with it the worker that answers: repeated under
    their keys at another one nothing is there twice, and nothing is lost."""
    model.script(HELD)
    await working(spawn, 2)
    first, a = await gateway(spawn)
    _, b = await gateway(spawn)
    begin = {"items": [user("before")], "metadata": {"a": "b"}}
    more = {"items": [user("more")]}
    path = "/v1/conversations"
    made = await post(a, begin, path=path, headers={"Idempotency-Key": "begin"})
    items = f"{path}/{made.json['id']}/items"
    added = await post(a, more, path=items, headers={"Idempotency-Key": "more"})
    body = {"model": "shoal", "input": "hello", "conversation": made.json["id"]}
    asked = asyncio.create_task(post(a, body, path="/v1/responses", headers=KEY))
    await eventually(lambda: model.stats()["open"], within_s=60)
    [name] = [key async for key in sessions(client)]
    first.popen.kill()
    await asyncio.wait([asked])
    again = asyncio.create_task(post(b, body, path="/v1/responses", headers=KEY))
    (await holder(client, name)).kill()
    model.release()
    assert (await again).json["output"][0]["content"][0]["text"] == WORDS
    assert (await post(b, begin, path=path, headers={"Idempotency-Key": "begin"})).body == made.body
    assert (await post(b, more, path=items, headers={"Idempotency-Key": "more"})).body == added.body
    async with asker(b) as other:
        found: list[Any] = [item async for item in other.conversations.items.list(made.json["id"], order="asc")]
        texts = [item.content[0].text for item in found]
        assert texts == ["before", "more", "hello", WORDS]
        talk = [(one["role"], one["content"]) for one in model.requests()[-1].body["messages"][1:-1]]
        assert talk == [("user", "before"), ("user", "more")]
        await other.conversations.delete(made.json["id"])
    assert await client.command("EXISTS", keys.session(name), keys.history(name)) == 0


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
