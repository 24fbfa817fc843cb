"""OpenAI's own client asks for responses: what people do with it."""

from __future__ import annotations

import json
from typing import Any

import openai as official
import pytest
from openai.types.responses import Response
from pydantic import BaseModel
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from shared.messages.outbound import ReplyPart, TokensUsed
from shared.messages.transcript import AssistantEntry, ToolCall, ToolEntry, UserEntry
from shared.store import keys
from shared.store.client.redis_client import RedisClient
from tests.gateway.channels.api.asking import (
    answering,
    asker,
    asking,
    named,
    none_left,
    post,
    waiting_message,
    working,
)
from tests.gateway.channels.api.by_hand import turn_by_hand
from tests.gateway.harness import TOKENS, gateway
from tests.helpers.wait import eventually

PATH = "/v1/responses"
HELLO: Any = {"model": "shoal", "input": "hello"}


class Place(BaseModel):
    city: str


async def test_a_response_has_every_field_of_openais(redis_url: str) -> None:
    """The client's own models read it, and nothing in it is beyond them."""
    body = HELLO | {"metadata": {"a": "b"}, "instructions": "be brief", "temperature": 0.5, "max_output_tokens": 50}
    async with gateway(redis_url) as at, working(redis_url):
        result = await post(at.address, body, path=PATH)
    answer = Response.model_validate_json(result.body)
    assert (answer.object, answer.model, answer.status, answer.model_extra) == (
        "response",
        "shoal",
        "completed",
        {"store": True},
    )
    assert answer.output_text == "you said: hello"
    assert answer.id.removeprefix("resp_") == result.headers["x-request-id"]
    assert (answer.metadata, answer.instructions, answer.temperature) == ({"a": "b"}, "be brief", 0.5)
    assert (answer.max_output_tokens, answer.tools, answer.tool_choice, answer.error) == (50, [], "auto", None)


async def test_a_stored_response_is_read_continued_and_deleted_at_another_gateway(
    redis_url: str, client: RedisClient
) -> None:
    """Its session has its history; with its last response it is gone, too."""
    async with gateway(redis_url) as a, gateway(redis_url) as b, working(redis_url) as worker:
        async with asker(a.address) as one, asker(b.address) as other:
            first = await one.responses.create(**HELLO)
            assert await other.responses.retrieve(first.id) == first
            second = await other.responses.create(model="shoal", input="and?", previous_response_id=first.id)
            assert (second.output_text, second.previous_response_id) == ("you said: and?", first.id)
            [(session, _), (again, _)] = worker.turns
            assert session == again
            items = await one.responses.input_items.list(second.id)
            [item] = items.data
            assert (item.type, item.content[0].text) == ("message", "and?")  # type: ignore[union-attr, index]
            await one.responses.delete(second.id)
            assert (await one.responses.retrieve(first.id)).output_text == "you said: hello"
            await one.responses.delete(first.id)
            for id in (first.id, second.id, "resp_" + "0" * 32, "nonsense"):
                with pytest.raises(official.NotFoundError) as refused:
                    await other.responses.retrieve(id)
                assert refused.value.code == "response_not_found"
        await eventually(lambda: none_left(client), within_s=60)


async def test_the_conversation_of_the_first_request_stays(redis_url: str, client: RedisClient) -> None:
    """What came before its last message travels with it, as instructions do."""
    talk = [
        {"role": "developer", "content": "in German"},
        {"role": "user", "content": [{"type": "input_text", "text": "one"}]},
        {"type": "message", "role": "assistant", "id": "msg_x", "status": "completed",
         "content": [{"type": "output_text", "text": "1", "annotations": []}]},
        {"type": "reasoning", "id": "rs_1", "summary": []},
        {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c1", "output": "rain"},
        {"role": "user", "content": "two"},
    ]  # fmt: skip
    body = {"model": "shoal", "input": talk, "instructions": "be brief"}
    async with gateway(redis_url) as at, asking(at.address, body, path=PATH):
        message = await waiting_message(client)
    assert message.content == "two"
    assert message.history == (
        UserEntry(content="be brief", turn=0),
        UserEntry(content="in German", turn=0),
        UserEntry(content="one", turn=0),
        AssistantEntry(content="1", turn=0, tool_calls=(ToolCall("c1", "f", "{}"),)),
        ToolEntry(call_id="c1", name="f", content="rain", turn=0, sources=("tools of the client",), client=True),
    )
    assert message.sources == ("tools of the client",)


async def test_all_that_is_new_is_one_message(redis_url: str, client: RedisClient) -> None:
    """The session has the rest. References to what was seen name the response, too."""
    async with gateway(redis_url) as at:
        async with working(redis_url), asker(at.address) as one:
            first = await one.responses.create(**HELLO)
        new = [
            {"role": "user", "content": "it rains"},
            {"role": "user", "content": "and now?"},
        ]
        seen = [{"role": "user", "content": "hello"}, {"type": "item_reference", "id": first.output[0].id}]
        body = {"model": "shoal", "input": [*seen, *new], "instructions": "be brief"}
        async with asking(at.address, body, path=PATH):
            session = f"api:owner/~-{first.id.removeprefix('resp_')}"
            message = await waiting_message(client, session)
    assert message.content == "be brief\n\nit rains\n\nand now?"
    assert message.history == ()


async def test_an_unknown_response_is_not_continued(redis_url: str) -> None:
    async with gateway(redis_url) as at, asker(at.address) as one:
        for id in ("resp_" + "0" * 32, "nonsense"):
            with pytest.raises(official.NotFoundError) as missing:
                await one.responses.create(**HELLO, previous_response_id=id)
            assert (missing.value.code, missing.value.param) == ("response_not_found", "previous_response_id")


async def test_a_response_that_runs_cannot_be_continued_yet(redis_url: str, client: RedisClient) -> None:
    """The client may ask again, and OpenAI's does so by itself."""
    async with gateway(redis_url) as at, asker(at.address) as one, asker(at.address) as impatient:
        stream = await one.responses.create(**HELLO, stream=True)
        id = await first_id(stream)
        with pytest.raises(official.ConflictError) as refused:
            await impatient.responses.create(**HELLO, previous_response_id=id)
        assert refused.value.code == "conversation_busy"
        assert (await impatient.responses.retrieve(id)).status == "in_progress"


async def first_id(stream: Any) -> str:
    """The id of the response that a stream begins with."""
    event = await anext(aiter(stream))
    assert event.type == "response.created"
    return str(event.response.id)


async def test_a_conversation_is_a_named_session(redis_url: str, client: RedisClient) -> None:
    """The same as that of chat completions and the header; its responses can be read and continued."""
    async with gateway(redis_url) as at, working(redis_url) as worker, asker(at.address) as one:
        for sent in ("a", "conv_a", {"id": "conv_a"}):
            answer = await one.responses.create(**HELLO, conversation=sent)  # type: ignore[arg-type]
            assert answer.conversation is not None
            assert answer.conversation.id == "conv_a"
        await one.responses.create(**HELLO, extra_headers={"X-Shoal-Session": "a"})
        await one.chat.completions.create(model="shoal", user="a", messages=[{"role": "user", "content": "x"}])
        assert {session for session, _ in worker.turns} == {named("a")}
        await one.responses.create(**HELLO, conversation="a", store=False)
        command = await one.responses.create(model="shoal", input="/help", conversation="a")
        assert "/new" in command.output_text
        newest = await one.responses.create(**HELLO, conversation="a")
        again = await one.responses.create(model="shoal", input="/help", previous_response_id=newest.id)
        assert again.output_text == "you said: /help", "its text is no command, which would be no turn"
        assert worker.turns[-1][0] == named("a")
        with pytest.raises(official.BadRequestError) as refused:
            await one.responses.create(**HELLO, conversation="a", previous_response_id="resp_" + "0" * 32)
        assert refused.value.param == "previous_response_id"


async def test_others_have_no_such_response(redis_url: str) -> None:
    """Neither to read, nor to continue, cancel or delete."""
    async with gateway(redis_url) as at, working(redis_url):
        async with asker(at.address) as owner, asker(at.address, TOKENS["ann"]) as ann:
            id = (await owner.responses.create(**HELLO)).id
            for call in (
                ann.responses.retrieve(id),
                ann.responses.delete(id),
                ann.responses.cancel(id),
                ann.responses.create(**HELLO, previous_response_id=id),
            ):
                with pytest.raises(official.NotFoundError) as refused:
                    await call
                assert refused.value.code == "response_not_found"
            assert (await owner.responses.retrieve(id)).id == id


async def test_a_response_that_is_not_stored_leaves_nothing(redis_url: str, client: RedisClient) -> None:
    """Like a chat completion without a name."""
    async with gateway(redis_url) as at, working(redis_url), asker(at.address) as one:
        answer = await one.responses.create(**HELLO, store=False)
        assert (answer.output_text, answer.store) == ("you said: hello", False)
        with pytest.raises(official.NotFoundError):
            await one.responses.retrieve(answer.id)
        await eventually(lambda: none_left(client), within_s=60)


async def test_a_text_is_stored_once(redis_url: str, client: RedisClient) -> None:
    """With a key, too: it leads to the response. The same request again is the same response, byte for byte."""
    headers = {"Idempotency-Key": "k1"}
    async with gateway(redis_url) as a, gateway(redis_url) as b, working(redis_url) as worker:
        results = [await post(at.address, HELLO, path=PATH, headers=headers) for at in (a, b)]
        streamed = await post(b.address, HELLO | {"stream": True}, path=PATH, headers=headers)
        other = await post(a.address, HELLO | {"input": "x"}, path=PATH, headers=headers)
    assert results[0].body == results[1].body
    assert b'"delta":"you said: hello"' in streamed.body
    assert (other.status, other.error["code"]) == (422, "idempotency_key_reused")
    assert len(worker.turns) == 1
    [key] = await client.command("KEYS", keys.request_answer("*"))
    assert await client.command("HGET", key, "answer") is None


async def test_the_streams_helper_reads_it(redis_url: str, client: RedisClient) -> None:
    """Text comes while it is written; the response at the end is the one that is read later."""
    async with gateway(redis_url) as at, asker(at.address) as one, turn_and_stream(one, client) as (stream, turn):
        await turn.show("Once")
        await turn.show(" upon")
        await turn.end("Once upon a time", usage=TokensUsed(prompt=7, completion=4, cached=2))
        deltas = [event.delta async for event in stream if event.type == "response.output_text.delta"]
        final = await stream.get_final_response()
        assert "".join(deltas) == final.output_text == "Once upon a time"
        assert len(deltas) > 1
        assert final.usage is not None
        assert (final.usage.input_tokens, final.usage.output_tokens, final.usage.total_tokens) == (7, 4, 11)
        assert (await one.responses.retrieve(final.id)).output_text == final.output_text


class turn_and_stream:
    """A stream of the client's helper, and its turn by hand."""

    def __init__(self, one: official.AsyncOpenAI, client: RedisClient, **asked: Any) -> None:
        self._stream = one.responses.stream(**{**HELLO, **asked})
        self._turn = turn_by_hand(client)

    async def __aenter__(self) -> tuple[Any, Any]:
        return await self._stream.__aenter__(), await self._turn.__aenter__()

    async def __aexit__(self, *raised: Any) -> None:
        await self._turn.__aexit__(*raised)
        await self._stream.__aexit__(*raised)


async def test_text_that_was_withdrawn_is_no_part_of_the_response(redis_url: str, client: RedisClient) -> None:
    """It was shown as an item of its own; the answer is another one."""
    async with gateway(redis_url) as at, asker(at.address) as one, turn_and_stream(one, client) as (stream, turn):
        await turn.show("First words")
        events = [await anext(aiter(stream)) for _ in range(5)]
        assert events[-1].type == "response.output_text.delta"
        await turn.end("Another answer")
        done = [event.text async for event in stream if event.type == "response.output_text.done"]
        final = await stream.get_final_response()
        assert final.output_text == done[-1] == "Another answer"
        assert done[0].startswith("First words")
        assert len(final.output) == 1


async def test_a_structured_response_is_parsed(redis_url: str, client: RedisClient) -> None:
    """The schema travels with the message, and the client reads the answer into its own type."""
    line = {"content": '{"city": "Kiel"}', "parts": (ReplyPart("remark", "let me see"),)}
    async with gateway(redis_url) as at, asker(at.address) as one, answering(client, line) as asked:
        parsed = await one.responses.parse(model="shoal", input="where?", text_format=Place)
        read = await one.responses.retrieve(parsed.id)
    assert asked[0].options is not None
    assert '"city"' in asked[0].options.schema
    assert parsed.output_parsed == Place(city="Kiel")
    assert read.output_text == parsed.output_text
    assert read.text is not None
    assert read.text.format is not None
    assert read.text.format.type == "json_schema"


async def test_limits_of_a_request_travel_with_its_message(redis_url: str, client: RedisClient) -> None:
    body = HELLO | {"max_output_tokens": 9, "temperature": 0.25, "text": {"format": {"type": "json_object"}}}
    async with gateway(redis_url) as at, asking(at.address, body, path=PATH):
        message = await waiting_message(client)
    assert message.options is not None
    assert (message.options.max_tokens, message.options.temperature) == (9, 0.25)
    assert message.options.schema == '{"type":"object"}'


async def test_a_web_socket_is_refused_with_what_to_do_instead(redis_url: str) -> None:
    async with gateway(redis_url) as at:
        with pytest.raises(InvalidStatus) as refused:
            await connect(f"ws://{at.address}{PATH}", proxy=None)
    answer = refused.value.response
    assert answer.status_code == 400
    error = json.loads(answer.body)["error"]
    assert error["code"] == "unsupported_transport"
    assert "'stream': true" in error["message"]
