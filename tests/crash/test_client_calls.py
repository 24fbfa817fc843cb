"""OpenAI's client whose functions the model calls, and the workers and gateways that die meanwhile."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import openai
import psutil
import pytest

from shared.crash_points import VARIABLE
from shared.messages.transcript import AssistantEntry, ToolEntry
from shared.store import keys
from shared.store.client.redis_client import RedisClient
from tests.crash.test_api import gateway
from tests.gateway.channels.api.asking import asker, named, user
from tests.helpers.fleet import history, warm
from tests.helpers.fleet_fixtures import Spawn
from tests.helpers.openai_server import Answer, Call, ScriptedOpenAI
from tests.helpers.processes import Process
from tests.helpers.wait import eventually

SCHEMA: Any = {"type": "object", "properties": {"city": {"type": "string"}}}
TOOL: Any = {"type": "function", "function": {"name": "get_weather", "description": "Weather.", "parameters": SCHEMA}}
FLAT: Any = {"type": "function", "name": "get_weather", "description": "Weather.", "parameters": SCHEMA}
KIEL = '{"city": "Kiel"}'

SCRIPT = (
    Answer(match="weather", role="tool", text="Rain in Kiel.", times=0),
    Answer(match="weather", role="user", text="Let me look.", calls=[Call("get_weather", KIEL, "w1")], times=0),
    Answer(
        match="both",
        role="user",
        calls=[Call("get_weather", KIEL, "w1"), Call("calculate", '{"expression": "2+2"}', "c1")],
        times=0,
    ),
    Answer(match="both", role="tool", text="Four, and rain.", times=0),
)


async def working(spawn: Spawn, folder: Path, many: int = 1, **settings: str) -> list[Process]:
    """Workers, ready to answer, which die at an armed point."""
    env = {VARIABLE: str(folder / "crash")}
    workers = [spawn("worker", env=env, MODEL__CLIENT="direct", **settings) for _ in range(many)]
    await warm(*workers)
    return workers


async def waits(client: RedisClient, session: str) -> None:
    """Until the turn of a session holds no worker."""

    async def parked() -> bool:
        asked, owned = await client.pipeline(
            [("HGET", keys.session(session), "asked"), ("HEXISTS", keys.leases("turns"), keys.turn(session))]
        )
        return asked is not None and asked.startswith(b"calls ") and not owned

    await eventually(parked, within_s=40, what="the wait for the program")


def result(call: Any, content: str = "rain") -> Any:
    return {"role": "tool", "tool_call_id": call.id, "content": content}


async def test_a_stateless_conversation_calls_a_function(
    client: RedisClient, spawn: Spawn, model: ScriptedOpenAI, tmp_path: Path
) -> None:
    """Chat completions without a name: whole, then streamed, with the results in the messages; nothing stays."""
    model.script(*SCRIPT)
    await working(spawn, tmp_path)
    _, address = await gateway(spawn)
    async with asker(address) as ask:
        messages = [user("weather")]
        answer = await ask.chat.completions.create(model="shoal", messages=messages, tools=[TOOL])
        [choice] = answer.choices
        assert (choice.finish_reason, choice.message.content) == ("tool_calls", "Let me look.")
        assert answer.usage is not None
        assert answer.usage.prompt_tokens > 0
        call: Any = (choice.message.tool_calls or [])[0]
        assert (call.type, call.function.name, call.function.arguments) == ("function", "get_weather", KIEL)
        messages += [choice.message.model_dump(exclude_none=True), result(call)]
        stream = await ask.chat.completions.create(model="shoal", messages=messages, tools=[TOOL], stream=True)
        chunks = [chunk.choices[0] async for chunk in stream]
        assert "".join(one.delta.content or "" for one in chunks) == "Rain in Kiel."
        assert chunks[-1].finish_reason == "stop"
        strict: Any = {"type": "function", "function": TOOL["function"] | {"strict": True}}
        async with ask.chat.completions.stream(model="shoal", messages=[user("weather")], tools=[strict]) as events:
            final = await events.get_final_completion()
        [call] = final.choices[0].message.tool_calls or []
        assert (final.choices[0].finish_reason, call.function.arguments) == ("tool_calls", KIEL)
    asked = model.requests()[1].body["messages"]
    assert [one["role"] for one in asked[-3:]] == ["user", "assistant", "tool"]
    assert [asked[-2]["tool_calls"][0]["function"]["name"], asked[-1]["content"]] == ["get_weather", "rain"]
    offered = [tool["function"] for tool in model.requests()[0].body["tools"]]
    assert TOOL["function"] in offered
    assert len(offered) > 1

    async def gone() -> bool:
        return not await client.command("ZCARD", keys.queue("turns"))

    await eventually(gone, what="the parked turn")


async def test_a_named_session_goes_on_with_the_result(
    client: RedisClient, spawn: Spawn, model: ScriptedOpenAI, tmp_path: Path
) -> None:
    """The turn that waits gets it; own tools have run before; the rest of the messages is not looked at."""
    model.script(*SCRIPT)
    await working(spawn, tmp_path)
    _, address = await gateway(spawn)
    session = named("n")
    async with asker(address) as ask:
        create = ask.chat.completions.create
        answer = await create(model="shoal", user="n", messages=[user("both")], tools=[TOOL])
        [call] = answer.choices[0].message.tool_calls or []
        await waits(client, session)
        with pytest.raises(openai.BadRequestError) as unknown:
            await create(model="shoal", user="n", messages=[{"role": "tool", "tool_call_id": "x", "content": "y"}])
        assert unknown.value.code == "no_such_call"
        answer = await create(model="shoal", user="n", messages=[result(call)])
        assert answer.choices[0].message.content == "Four, and rain."
        with pytest.raises(openai.ConflictError) as used:
            await create(model="shoal", user="n", messages=[result(call)])
        assert used.value.code == "output_used"
    found = [entry for entry in await history(client, session) if isinstance(entry, ToolEntry)]
    assert [(entry.name, entry.content) for entry in found] == [("get_weather", "rain"), ("calculate", "2+2 = 4")]


async def test_responses_call_a_function(
    client: RedisClient, spawn: Spawn, model: ScriptedOpenAI, tmp_path: Path
) -> None:
    """Answers whole and streamed; the results come with previous_response_id, through another gateway."""
    model.script(*SCRIPT)
    await working(spawn, tmp_path)
    _, one = await gateway(spawn)
    _, two = await gateway(spawn)
    async with asker(one) as ask, asker(two) as other:
        first = await ask.responses.create(model="shoal", input="weather", tools=[FLAT])
        assert (first.status, [item.type for item in first.output]) == ("completed", ["message", "function_call"])
        call: Any = first.output[1]
        assert (call.name, call.arguments, first.output_text) == ("get_weather", KIEL, "Let me look.")
        assert (await other.responses.retrieve(first.id)).output == first.output
        with pytest.raises(openai.BadRequestError, match=call.call_id):
            await other.responses.create(model="shoal", input="and?", previous_response_id=first.id)
        output: Any = [{"type": "function_call_output", "call_id": call.call_id, "output": "rain"}]
        second = await other.responses.create(model="shoal", input=output, previous_response_id=first.id)
        assert (second.output_text, second.status) == ("Rain in Kiel.", "completed")
        assert (await ask.responses.retrieve(second.id)).output_text == "Rain in Kiel."
        events = [
            event
            async for event in await ask.responses.create(model="shoal", input="weather", tools=[FLAT], stream=True)
        ]
        kinds = [event.type.removeprefix("response.") for event in events if "text" not in event.type]
        calls = ["function_call_arguments.delta", "function_call_arguments.done", "output_item.done", "completed"]
        assert kinds[-6:] == ["output_item.done", "output_item.added", *calls]
        numbers = [event.sequence_number for event in events]
        assert numbers == sorted(set(numbers))
        last: Any = events[-1]
        call = last.response.output[1]
        output = [{"type": "function_call_output", "call_id": call.call_id, "output": "rain"}]
        async with other.responses.stream(
            model="shoal", input=output, previous_response_id=last.response.id
        ) as streamed:
            assert (await streamed.get_final_response()).output_text == "Rain in Kiel."
        # A stream that was cut anywhere among the calls goes on at another gateway.
        for at in range(len(numbers) - 6, len(numbers) - 1):
            rest = await other.responses.retrieve(last.response.id, stream=True, starting_after=numbers[at])
            assert [event.sequence_number async for event in rest] == numbers[at + 1 :]


@pytest.mark.parametrize("point", ["before_park_calls 1", "after_park_calls 1", "after_acquire 1", "before_commit 1"])
async def test_a_worker_killed_around_the_wait_is_not_noticed(
    client: RedisClient, spawn: Spawn, model: ScriptedOpenAI, tmp_path: Path, point: str
) -> None:
    """Before and after it parks, and when it goes on: the client is asked once and answered once."""
    model.script(*SCRIPT)
    await working(spawn, tmp_path)
    _, address = await gateway(spawn)
    armed, resuming = tmp_path / "crash", point.startswith(("after_acquire", "before_commit"))
    async with asker(address) as ask:
        create = ask.chat.completions.create
        if not resuming:
            armed.write_text(point)
        answer = await create(model="shoal", user="n", messages=[user("weather")], tools=[TOOL])
        [call] = answer.choices[0].message.tool_calls or []
        await waits(client, named("n"))
        if resuming:
            armed.write_text(point)
        answer = await create(model="shoal", user="n", messages=[result(call)])
        assert answer.choices[0].message.content == "Rain in Kiel."
    assert not armed.exists()


async def test_results_sent_through_two_gateways_at_once_count_once(
    client: RedisClient, spawn: Spawn, model: ScriptedOpenAI, tmp_path: Path
) -> None:
    """All workers are killed while nobody works; one of two requests wins, the other hears that it came second."""
    model.script(*SCRIPT)
    [worker] = await working(spawn, tmp_path)
    _, one = await gateway(spawn)
    _, two = await gateway(spawn)
    async with asker(one) as ask, asker(two) as other:
        answer = await ask.chat.completions.create(model="shoal", user="n", messages=[user("weather")], tools=[TOOL])
        [call] = answer.choices[0].message.tool_calls or []
        await waits(client, named("n"))
        children = worker.children()
        worker.kill_group()
        # One that lives for a moment longer would claim the turn, and die with it.
        _, alive = psutil.wait_procs(children, 20)
        assert alive == []
        tries = [
            asyncio.create_task(asked.chat.completions.create(model="shoal", user="n", messages=[result(call, text)]))
            for asked, text in ((ask, "rain"), (other, "snow"))
        ]
        await asyncio.wait(tries, return_when=asyncio.FIRST_COMPLETED)
        await working(spawn, tmp_path)
        found = await asyncio.gather(*tries, return_exceptions=True)
    [refused] = [one for one in found if isinstance(one, BaseException)]
    assert isinstance(refused, openai.ConflictError)
    assert refused.code == "output_used"
    [entry] = [entry for entry in await history(client, named("n")) if isinstance(entry, ToolEntry)]
    assert entry.content in ("rain", "snow")


async def test_nobody_answers_in_time(client: RedisClient, spawn: Spawn, model: ScriptedOpenAI, tmp_path: Path) -> None:
    """In a named session the turn goes on without; elsewhere it ends. A late result is refused with a word."""
    model.script(*SCRIPT)
    await working(spawn, tmp_path, API__CALLS_WAIT_S="1")
    _, address = await gateway(spawn)

    async def over(session: str) -> bool:
        return not await client.command("EXISTS", keys.inbox(session))

    async with asker(address) as ask:
        answer = await ask.chat.completions.create(model="shoal", user="n", messages=[user("weather")], tools=[TOOL])
        [call] = answer.choices[0].message.tool_calls or []
        await eventually(lambda: over(named("n")), within_s=40, what="the end of the turn")
        with pytest.raises(openai.ConflictError) as late:
            await ask.chat.completions.create(model="shoal", user="n", messages=[result(call)])
        assert late.value.code == "output_too_late"
        first = await ask.responses.create(model="shoal", input="weather", tools=[FLAT])
        [session] = [one async for one in stored_sessions(client)]
        await eventually(lambda: over(session), within_s=40, what="the end of the turn")
        again = await ask.responses.create(model="shoal", input="weather", previous_response_id=first.id, tools=[FLAT])
        assert again.output[-1].type == "function_call"
    found = await history(client, named("n"))
    assert [entry.ok for entry in found if isinstance(entry, ToolEntry)] == [False]
    assert isinstance(found[-1], AssistantEntry)
    assert found[-1].content == "Rain in Kiel."


async def stored_sessions(client: RedisClient) -> Any:
    """The sessions of stored responses."""
    for one in await client.command("ZRANGE", keys.EPHEMERAL, 0, -1):
        yield one.decode()


async def test_a_new_message_ends_the_wait(
    client: RedisClient, spawn: Spawn, model: ScriptedOpenAI, tmp_path: Path
) -> None:
    """The program writes something else: the model reads that the call has no result."""
    model.script(Answer(match="never mind", text="All right.", times=0), *SCRIPT)
    await working(spawn, tmp_path)
    _, address = await gateway(spawn)
    async with asker(address) as ask:
        create = ask.chat.completions.create
        answer = await create(model="shoal", user="n", messages=[user("weather")], tools=[TOOL])
        [call] = answer.choices[0].message.tool_calls or []
        await waits(client, named("n"))
        answer = await create(model="shoal", user="n", messages=[user("never mind")])
        assert answer.choices[0].message.content == "All right."
        with pytest.raises(openai.ConflictError):
            await create(model="shoal", user="n", messages=[result(call)])
    result_note = next(one for one in model.requests()[-1].body["messages"] if one["role"] == "tool")
    assert "there is no result" in result_note["content"]


async def test_a_function_with_the_name_of_a_tool_is_refused(spawn: Spawn, tmp_path: Path) -> None:
    """And a call can be demanded."""
    await working(spawn, tmp_path)
    _, address = await gateway(spawn)
    same = json.loads(json.dumps(TOOL).replace("get_weather", "calculate"))
    async with asker(address) as ask:
        with pytest.raises(openai.BadRequestError, match="'calculate' has the name of a tool") as refused:
            await ask.chat.completions.create(model="shoal", messages=[user("hello")], tools=[same])
        assert refused.value.code == "function_name_taken"
