"""Responses that outlive their request: cancelled, deleted, read after their gateway died."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from gateway.channels.web.api.responses.stored import wait_until_read
from shared.chatlog.turn_reader import TurnReader
from shared.store import keys
from shared.store.client.redis_client import RedisClient
from shared.store.sessions.erase import forget
from shared.store.sessions.requests import ANSWER_LIMIT_BYTES
from tests.gateway.channels.api.asking import (
    answering,
    asker,
    asking,
    named,
    none_left,
    post,
    stream_of,
    waiting_message,
    working,
)
from tests.gateway.channels.api.by_hand import turn_by_hand
from tests.gateway.harness import gateway, process
from tests.helpers.wait import eventually

PATH = "/v1/responses"
HELLO: Any = {"model": "shoal", "input": "hello"}


async def only_response(client: RedisClient) -> str:
    """The id of the only stored response, once it is there."""

    async def found() -> str:
        names = await client.command("KEYS", keys.response("*"))
        return names[0].decode().removeprefix(keys.response("")) if names else ""

    return f"resp_{await eventually(found, within_s=60, what='a response')}"


async def test_a_response_goes_on_without_its_client(redis_url: str, client: RedisClient) -> None:
    """Nobody waits any more; whoever asks later gets the answer, which is then stored."""
    async with gateway(redis_url) as at, asker(at.address) as one:
        async with stream_of(at.address, HELLO | {"stream": True}, path=PATH) as reader:
            await reader.readuntil(b"response.in_progress")
        id = await only_response(client)
        assert (await one.responses.retrieve(id)).status == "in_progress"
        async with turn_by_hand(client) as turn:
            await turn.end("after all")
        answer = await one.responses.retrieve(id)
        assert (answer.status, answer.output_text) == ("completed", "after all")
        ticket = id.removeprefix("resp_")
        assert await client.command("HEXISTS", keys.response(ticket), "answer") == 1
        assert await one.responses.retrieve(id) == answer


async def test_a_response_is_read_when_its_gateway_is_dead(redis_url: str, client: RedisClient) -> None:
    """It is killed while the turn runs."""
    with process(redis_url) as a, process(redis_url) as b:
        await asyncio.gather(a.ready(), b.ready())
        async with asking(a.address, HELLO, path=PATH), turn_by_hand(client) as turn:
            id = await only_response(client)
            a.popen.kill()
            await turn.end("still here")
            async with asker(b.address) as one:
                answer = await one.responses.retrieve(id)
    assert (answer.status, answer.output_text) == ("completed", "still here")


async def test_an_answer_that_is_too_long_to_be_stored_is_in_the_log(redis_url: str, client: RedisClient) -> None:
    text = "x" * (ANSWER_LIMIT_BYTES + 1)
    async with gateway(redis_url) as at, asker(at.address) as one, answering(client, {"content": text}):
        made = await one.responses.create(**HELLO)
        assert made.output_text == text
        assert (await one.responses.retrieve(made.id)).output_text == text


@pytest.mark.parametrize("body", [HELLO, HELLO | {"conversation": "a"}], ids=["alone", "conversation"])
async def test_a_running_response_is_cancelled(redis_url: str, client: RedisClient, body: Any) -> None:
    """The turn is told to stop; what was said until then is kept. Again is the same."""
    async with gateway(redis_url) as a, gateway(redis_url) as b, asker(b.address) as one:
        async with asking(a.address, body, path=PATH) as asked, turn_by_hand(client) as turn:
            id = await only_response(client)
            cancelling = asyncio.create_task(one.responses.cancel(id))
            await eventually(lambda: stop_requested(client, turn.claim.session), within_s=60)
            await turn.end("so far", kind="stopped")
            cancelled = await cancelling
            assert (cancelled.status, cancelled.output_text) == ("cancelled", "so far")
            result = await asked
        assert (result.status, result.json["status"]) == (200, "cancelled")
        assert await one.responses.cancel(id) == cancelled == await one.responses.retrieve(id)


async def stop_requested(client: RedisClient, session: str) -> bool:
    return await client.command("HGET", keys.session(session), "stop") is not None


async def test_a_waiting_response_is_cancelled_without_a_turn(redis_url: str, client: RedisClient) -> None:
    """Its stream ends as that of one that was stopped."""
    async with gateway(redis_url) as at, asker(at.address) as one:
        stream = await one.responses.create(**HELLO, stream=True)
        events = aiter(stream)
        id = (await anext(events)).response.id
        cancelled = await one.responses.cancel(id)
        assert (cancelled.status, cancelled.output) == ("cancelled", [])
        rest = [event async for event in events]
    assert rest[-1].type == "response.incomplete"
    assert rest[-1].response.status == "cancelled"
    assert await client.command("XLEN", keys.inbox(f"api:owner/~-{id.removeprefix('resp_')}")) == 0


async def test_a_finished_response_is_not_cancelled(redis_url: str) -> None:
    """It is returned as it is."""
    async with gateway(redis_url) as at, working(redis_url), asker(at.address) as one:
        made = await one.responses.create(**HELLO)
        assert await one.responses.cancel(made.id) == made


async def test_a_failed_turn_is_an_error_and_stays_one(redis_url: str, client: RedisClient) -> None:
    """Over HTTP at once, in a stream, and when it is read again."""
    line = {"content": "Sorry.", "kind": "apology", "failed": "error"}
    async with gateway(redis_url) as at, asker(at.address) as one, answering(client, line):
        whole = await post(at.address, HELLO, path=PATH)
        assert (whole.status, whole.error["code"]) == (500, "turn_failed")
        read = await one.responses.retrieve(await only_response(client))
        assert read.error is not None
        assert (read.status, read.error.code, read.error.message) == ("failed", "server_error", "Sorry.")
        events = [event async for event in await one.responses.create(**HELLO, stream=True)]
        assert [event.type for event in events[-2:]] == ["error", "response.failed"]


async def test_a_deleted_response_that_runs_ends(redis_url: str, client: RedisClient) -> None:
    """With its session, of which nothing is left."""
    async with gateway(redis_url) as at, asker(at.address) as one:
        async with asking(at.address, HELLO, path=PATH) as asked:
            await waiting_message(client)
            await one.responses.delete(await only_response(client))
            assert (await asked).status == 409
        await eventually(lambda: none_left(client), within_s=60)


async def test_forgetting_a_conversation_forgets_its_responses(redis_url: str, client: RedisClient) -> None:
    """By `/forget` of the person, and by an operator; `/new` leaves them, and they cannot be continued."""
    async with gateway(redis_url) as at, working(redis_url), asker(at.address) as one:
        first = await one.responses.create(**HELLO, conversation="a")
        await one.responses.create(model="shoal", input="/new", conversation="a")
        refused = await post(at.address, HELLO | {"previous_response_id": first.id}, path=PATH)
        assert refused.error["code"] == "previous_response_not_newest"
        assert (await one.responses.retrieve(first.id)).output_text == "you said: hello"
        await one.responses.create(model="shoal", input="/forget", conversation="a", store=False)
        assert (await post(at.address, path=f"{PATH}/{first.id}", method="GET")).status == 404
        second = await one.responses.create(**HELLO, conversation="a")
        await forget(client, named("a"))
        assert (await post(at.address, path=f"{PATH}/{second.id}", method="GET")).status == 404


async def test_input_items_come_in_pages(redis_url: str) -> None:
    """Newest first unless asked otherwise; files are only named."""
    data = "data:text/plain;base64,aGk="
    parts = [{"type": "input_text", "text": "3"}, {"type": "input_file", "filename": "a.txt", "file_data": data}]
    talk = [
        {"role": "user", "content": "1"},
        {"role": "assistant", "content": "2"},
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": "o"},
        {"role": "user", "content": parts},
    ]
    async with gateway(redis_url) as at, working(redis_url), asker(at.address) as one:
        made = await one.responses.create(model="shoal", input=talk)  # type: ignore[arg-type]
        items = [item async for item in await one.responses.input_items.list(made.id, limit=2, order="asc")]
        newest = await one.responses.input_items.list(made.id, limit=1)
        wrong = [
            await post(at.address, path=f"{PATH}/{made.id}/input_items?{query}", method="GET")
            for query in ("limit=0", "limit=101", "order=up", "after=x")
        ]
    assert [item.type for item in items] == [
        "message", "message", "function_call", "function_call_output", "message",
    ]  # fmt: skip
    texts = [part.text for part in items[-1].content]  # type: ignore[union-attr]
    assert texts == ["3", "[file: a.txt]"]
    assert newest.has_more
    assert newest.data == [items[-1]]
    assert [(one.status, one.error["param"]) for one in wrong] == [
        (400, "limit"), (400, "limit"), (400, "order"), (400, "after"),
    ]  # fmt: skip


async def test_a_log_that_is_read_twice_in_a_row_was_read() -> None:
    """An event that comes just after the first reading begins another one: that is no failure."""
    reader = TurnReader("id", 0)

    async def read_once() -> None:
        await asyncio.to_thread(str)  # some turns of the event loop, as a read takes
        reader.reading = None

    async def read_twice() -> None:
        reader.reading = asyncio.create_task(read_once())

    reader.reading = asyncio.create_task(read_twice())
    await wait_until_read(reader, 0)
    assert reader.reading is None
