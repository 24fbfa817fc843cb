"""What a client asks of its turn travels with the message, and so do calls of its functions."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gateway.channels.web.api.options import ANY_OBJECT
from gateway.channels.web.api.request import parse_request
from shared.messages.codec import SCHEMA_VERSION
from shared.messages.inbound import TurnOptions
from shared.messages.transcript import AssistantEntry, ToolCall, ToolEntry
from shared.settings import ApiSettings
from shared.store.client.redis_client import RedisClient
from shared.store.turns.client_calls import CLIENT_TOOLS
from tests.gateway.channels.api.asking import HELLO, answering, asker, post, user
from tests.gateway.harness import gateway

SCHEMA: dict[str, Any] = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
CALL = {"id": "call_1", "type": "function", "function": {"name": "get_weather", "arguments": '{"city": "Kiel"}'}}
CALLED: list[dict[str, Any]] = [
    user("how is the weather?"),
    {"role": "assistant", "content": None, "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "call_1", "content": "rain"},
]


def formed(**form: Any) -> dict[str, Any]:
    return {"response_format": form}


OPTIONS: dict[str, tuple[dict[str, Any], TurnOptions | None]] = {
    "nothing": ({}, None),
    "empty ones": ({"stop": [], "response_format": {"type": "text"}, "max_tokens": None, "temperature": None}, None),
    "a limit": ({"max_tokens": 7}, TurnOptions(max_tokens=7)),
    "both limits": ({"max_tokens": 7, "max_completion_tokens": 5}, TurnOptions(max_tokens=5)),
    "cold": ({"temperature": 0}, TurnOptions(temperature=0)),
    "a stop": ({"stop": "END"}, TurnOptions(stop=("END",))),
    "stops": ({"stop": ["a", "", "b"]}, TurnOptions(stop=("a", "b"))),
    "an object": (formed(type="json_object"), TurnOptions(schema=ANY_OBJECT)),
    "a schema without one": (formed(type="json_schema", json_schema={"name": "x"}), TurnOptions(schema=ANY_OBJECT)),
    "a schema": (
        formed(type="json_schema", json_schema={"name": "x", "strict": True, "schema": SCHEMA}),
        TurnOptions(schema=json.dumps(SCHEMA, separators=(",", ":"))),
    ),
}


@pytest.mark.parametrize("case", OPTIONS)
async def test_options_travel_with_the_message(redis_url: str, client: RedisClient, case: str) -> None:
    """In the record, so that any worker knows them, also after the first one has died."""
    fields, options = OPTIONS[case]
    async with gateway(redis_url) as at, answering(client, {"content": "{}"}) as asked:
        result = await post(at.address, HELLO | fields)
    assert (result.status, "shoal-ignored" in result.headers) == (200, False)
    [message] = asked
    assert message.options == options


async def test_an_answer_in_a_form_is_that_text_alone(redis_url: str, client: RedisClient) -> None:
    """A program parses all of it."""
    async with gateway(redis_url) as at, answering(client, {"content": '{"city": "Kiel"}'}), asker(at.address) as ask:
        form: Any = formed(type="json_schema", json_schema={"name": "x", "schema": SCHEMA})["response_format"]
        made = await ask.chat.completions.create(model="shoal", messages=[user("where?")], response_format=form)
        assert json.loads(made.choices[0].message.content or "") == {"city": "Kiel"}


async def test_calls_and_results_are_steps_of_the_turn(redis_url: str, client: RedisClient) -> None:
    """After the message that they belong to; before a newer one they are history. A result is what others may have
    written, so it marks the turn: tools that can do harm are not run freely."""
    async with gateway(redis_url) as at, answering(client, {"content": "take an umbrella"}) as asked:
        assert (await post(at.address, HELLO | {"messages": CALLED})).status == 200
        assert (await post(at.address, HELLO | {"messages": [*CALLED, user("so?")]})).status == 200
    first, second = asked
    steps = (
        AssistantEntry(content=None, turn=0, tool_calls=(ToolCall("call_1", "get_weather", '{"city": "Kiel"}'),)),
        ToolEntry(call_id="call_1", name="get_weather", content="rain", turn=0, sources=(CLIENT_TOOLS,), client=True),
    )
    assert (first.content, first.history, first.options) == ("how is the weather?", (), TurnOptions(steps=steps))
    assert (second.content, second.history[1:], second.options) == ("so?", steps, None)
    assert first.sources == second.sources == (CLIENT_TOOLS,)
    assert first.version == second.version == SCHEMA_VERSION


def test_a_call_in_the_older_form_is_text() -> None:
    """And so is its result."""
    answer = {"role": "assistant", "content": "I look.", "function_call": {"name": "old"}}
    body = HELLO | {
        "messages": [user("a"), answer, {"role": "function", "name": "old", "content": [{"type": "text", "text": "b"}]}]
    }
    prompt = parse_request(json.dumps(body).encode(), None, {"shoal": ""}).prompt
    assert prompt.text == "[result of old]\nb"
    assert prompt.history[1].content == "I look.\n[called old with {}]"


@pytest.mark.parametrize("name", [None, "support"])
def test_system_texts_count_as_such_behind_a_setting(name: str | None) -> None:
    """For a request of its own and in a named session; without the setting they are of the user."""
    messages = [{"role": "system", "content": "be brief"}, user("a"), {"role": "developer", "content": "in German"}]
    body = json.dumps(HELLO | {"messages": messages}).encode()
    asked = parse_request(body, name, {"shoal": ""}, ApiSettings(system_texts=True))
    assert asked.options == TurnOptions(system="be brief\n\nin German")
    assert asked.prompt.history == ()
    usual = parse_request(body, name, {"shoal": ""})
    assert usual.options is None
    assert [entry.content for entry in usual.prompt.history] == ([] if name else ["be brief", "in German"])
    none = parse_request(json.dumps(HELLO).encode(), name, {"shoal": ""}, ApiSettings(system_texts=True))
    assert none.options is None
