"""OpenAI's client against real gateways and workers, which die while it waits."""

from __future__ import annotations

import asyncio
from base64 import b64encode
from typing import Any

import pytest
from openai import AsyncOpenAI

from shared.store import keys
from shared.store.client.redis_client import RedisClient
from tests.crash.test_worker_death import HELD, WORDS
from tests.gateway.channels.api.asking import HELLO, asker, named, post, text_of, user
from tests.gateway.harness import TOKENS, free_port
from tests.helpers.fleet import history, holder, replies, warm
from tests.helpers.fleet_fixtures import Spawn
from tests.helpers.media_files import png
from tests.helpers.openai_server import Answer, Call, ScriptedOpenAI
from tests.helpers.processes import Process
from tests.helpers.wait import eventually

KEY = {"Idempotency-Key": "k"}


async def working(spawn: Spawn, many: int = 1, **settings: str) -> None:
    """So many workers, ready to answer."""
    await warm(*[spawn("worker", MODEL__CLIENT="direct", **settings) for _ in range(many)])


async def gateway(spawn: Spawn, **settings: str) -> tuple[Process, str]:
    """A gateway and its address."""
    port = free_port()
    made = spawn("gateway", WEB__PORT=str(port), WEB__TOKENS__OWNER=TOKENS["owner"], **settings)
    await eventually(lambda: "web listening" in made.log, within_s=60)
    return made, f"127.0.0.1:{port}"


class Stream:
    """A stream that is read beside the test."""

    def __init__(self, client: AsyncOpenAI, **asked: Any) -> None:
        self.text = ""
        self.task = asyncio.create_task(self._read(client, asked))

    async def _read(self, client: AsyncOpenAI, asked: dict[str, Any]) -> None:
        async for chunk in await client.chat.completions.create(**{**HELLO, **asked}, stream=True):
            for choice in chunk.choices:
                self.text += choice.delta.content or ""


async def test_a_worker_killed_in_a_stream_is_not_noticed(
    client: RedisClient, spawn: Spawn, model: ScriptedOpenAI
) -> None:
    """kill -9 while it streams: another one begins again, and the client reads every word once."""
    model.script(HELD)
    await working(spawn, 2)
    _, address = await gateway(spawn)
    async with asker(address) as ask:
        stream = Stream(ask, user="a")
        await eventually(lambda: "word5" in stream.text, within_s=60)
        (await holder(client, named("a"))).kill()
        model.release()
        await asyncio.wait_for(stream.task, 60)
    assert stream.text == WORDS
    assert await replies(client, named("a")) == [WORDS]
    assert len(model.requests()) == 2


async def test_a_worker_killed_in_a_streamed_response_is_not_noticed(
    client: RedisClient, spawn: Spawn, model: ScriptedOpenAI
) -> None:
    """Its events bring every word once, and so does the response that is read afterwards."""
    model.script(HELD)
    await working(spawn, 2)
    _, address = await gateway(spawn)
    deltas: list[str] = []
    async with asker(address) as ask:
        async with ask.responses.stream(model="shoal", input="hello") as stream:
            async for event in stream:
                if event.type == "response.output_text.delta":
                    deltas.append(event.delta)
                    if len(deltas) == 2:
                        [name] = [key async for key in sessions(client)]
                        (await holder(client, name)).kill()
                        model.release()
            final = await stream.get_final_response()
        read = await ask.responses.retrieve(final.id)
        again = await ask.responses.create(model="shoal", input="and?", previous_response_id=final.id)
    assert "".join(deltas) == final.output_text == read.output_text == again.output_text == WORDS
    talk = [(one["role"], one["content"]) for one in model.requests()[-1].body["messages"][1:-1]]
    assert talk == [("user", "hello"), ("assistant", WORDS)]


async def test_what_a_client_asked_for_survives_a_killed_worker(
    client: RedisClient, spawn: Spawn, model: ScriptedOpenAI
) -> None:
    """It travels with the message: the second worker stops at the same place, and asks with the same limit."""
    model.script(Answer(text=f"{WORDS} END of it", delta_s=0.03, held_after=45, times=0))
    await working(spawn, 2)
    _, address = await gateway(spawn)
    async with asker(address) as ask:
        stream = Stream(ask, user="a", stop=["END"], max_tokens=500, temperature=0.25)
        await eventually(lambda: "word5" in stream.text, within_s=60)
        (await holder(client, named("a"))).kill()
        model.release()
        await asyncio.wait_for(stream.task, 60)
    assert stream.text.strip() == WORDS
    assert [(one.body["max_tokens"], one.body["temperature"]) for one in model.requests()] == [(500, 0.25)] * 2


async def test_a_worker_killed_in_a_whole_answer_is_not_noticed(
    client: RedisClient, spawn: Spawn, model: ScriptedOpenAI
) -> None:
    """Of a request alone: its conversation came with it, so the second worker has it, too."""
    model.script(HELD)
    await working(spawn, 2)
    _, address = await gateway(spawn)
    async with asker(address) as ask:
        messages = [{"role": "system", "content": "be brief"}, user("one"), {"role": "assistant", "content": "1"}]
        asked = asyncio.create_task(ask.chat.completions.create(model="shoal", messages=[*messages, user("two")]))
        await eventually(lambda: model.stats()["open"], within_s=60)
        [name] = [key async for key in sessions(client)]
        (await holder(client, name)).kill()
        model.release()
        assert (await asked).choices[0].message.content == WORDS
    for request in model.requests():
        _, *talk, last = request.body["messages"]
        assert [(one["role"], one["content"]) for one in talk] == [
            ("user", "be brief"), ("user", "one"), ("assistant", "1"),
        ]  # fmt: skip
        assert last["content"].startswith("two\n\n[Runtime Context]")
    await eventually(lambda: none_left_of_sessions(client), within_s=60)


async def sessions(client: RedisClient) -> Any:
    """The sessions that wait or run."""
    for member in await client.command("HKEYS", keys.leases("turns")):
        yield member.decode().removeprefix(keys.TURN_PREFIX)


async def none_left_of_sessions(client: RedisClient) -> bool:
    """But of the ids that were seen, by the day, and of what one person's single requests used together."""
    found = {key.decode().split(":")[2] for key in await client.command("KEYS", "shoal:{0ax}:*:api:*")}
    assert found <= {"spent", "seen"}, found
    assert await client.command("KEYS", "shoal:{0ax}:*:api:owner/~[0-9a-f]*") == []
    return True


async def test_a_killed_gateway_costs_a_client_with_a_key_nothing(
    client: RedisClient, spawn: Spawn, model: ScriptedOpenAI
) -> None:
    """kill -9 while a stream runs: the other gateway tells the same turn from its beginning."""
    model.script(HELD)
    await working(spawn)
    first, address = await gateway(spawn)
    _, other = await gateway(spawn)
    async with asker(address) as ask, asker(other) as again:
        stream = Stream(ask, extra_headers=KEY)
        await eventually(lambda: "word5" in stream.text, within_s=60)
        first.kill_group()
        model.release()
        with pytest.raises(Exception, match=r".*"):
            await stream.task
        result = await text_of(await again.chat.completions.create(**HELLO, stream=True, extra_headers=KEY))
        assert result == WORDS
        stored = await again.chat.completions.create(**HELLO, extra_headers=KEY)
        assert stored.choices[0].message.content == WORDS
    assert len(model.requests()) == 1
    await eventually(lambda: none_left_of_sessions(client), within_s=60)


async def test_a_client_that_leaves_ends_its_turn_in_the_worker(
    client: RedisClient, spawn: Spawn, model: ScriptedOpenAI
) -> None:
    """A request alone: the model call is broken off, and nothing is left of it."""
    model.script(Answer(text=WORDS, delta_s=1.0, times=0))
    await working(spawn)
    _, address = await gateway(spawn)
    async with asker(address) as ask:
        stream = Stream(ask)
        await eventually(lambda: model.stats()["open"] and stream.text, within_s=60)
        stream.task.cancel()
        await asyncio.wait([stream.task])
    await eventually(lambda: model.stats()["open"] == 0, within_s=60)
    await eventually(lambda: none_left_of_sessions(client), within_s=60)


async def test_a_session_remembers_and_a_preset_answers_one_message(
    client: RedisClient, spawn: Spawn, model: ScriptedOpenAI
) -> None:
    """The worker's own numbers are the usage; what a tool step said is no part of a whole answer."""
    model.script(
        Answer(match="^sum", role="user", text="Let me see", calls=[Call("calculate", '{"expression": "2+2"}')]),
        Answer(match="^sum", role="tool", text="It is four.", cached_tokens=7),
    )
    settings = {"MODEL__PRESETS__DEEP__NAME": "openai/deep"}
    await working(spawn, 1, **settings)
    _, address = await gateway(spawn, **settings)
    async with asker(address) as ask:
        result = await ask.chat.completions.create(model="deep", messages=[user("sum")], user="a")
        assert result.choices[0].message.content == "Let me see\n\nIt is four."
        asked = model.requests()
        assert result.usage is not None
        assert result.usage.prompt_tokens > 1000, "two prompts, with the tools of each"
        assert (result.usage.completion_tokens, result.usage.total_tokens - result.usage.prompt_tokens) == (6, 6)
        assert result.usage.prompt_tokens_details is not None
        assert result.usage.prompt_tokens_details.cached_tokens == 7
        assert [one.body["model"] for one in asked] == ["deep", "deep"]
        more = await text_of(
            await ask.chat.completions.create(model="shoal", messages=[user("and")], user="a", stream=True)
        )
        assert more == "echo: and"
    last = model.requests()[-1].body
    assert last["model"] == "scripted"
    assert [one["content"] for one in last["messages"] if one["role"] == "assistant"] == ["Let me see", "It is four."]
    assert len(await history(client, named("a"))) == 6


async def test_pictures_reach_the_model(client: RedisClient, spawn: Spawn, model: ScriptedOpenAI) -> None:
    """As the person sent them, from a data: URL of the request."""
    await working(spawn)
    _, address = await gateway(spawn)
    url = f"data:image/png;base64,{b64encode(png()).decode()}"
    content = [{"type": "text", "text": "what is it?"}, {"type": "image_url", "image_url": {"url": url}}]
    assert (await post(address, {"model": "shoal", "messages": [{"role": "user", "content": content}]})).status == 200
    [request] = model.requests()
    parts = request.body["messages"][-1]["content"]
    assert [part["image_url"]["url"] for part in parts if part["type"] == "image_url"] == [url]


async def test_a_turn_that_fails_is_an_error_with_its_reference(
    client: RedisClient, spawn: Spawn, model: ScriptedOpenAI
) -> None:
    """A model that refuses: the apology and the dead letter are one, and the same key fails again without a turn."""
    model.script(Answer(status=401, times=0))
    await working(spawn)
    _, address = await gateway(spawn)
    first, second = await post(address, HELLO, headers=KEY), await post(address, HELLO, headers=KEY)
    assert (first.status, first.error["code"], first.headers["x-should-retry"]) == (403, "model_auth", "false")
    assert "reference" in first.error["message"]
    assert first.error["message"].endswith("The provider: scripted error 401")
    assert second.body == first.body
    assert await client.command("XLEN", keys.DEAD) == 1
