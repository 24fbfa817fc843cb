"""Runs of AG-UI at gateways and a tiny worker: one message is one turn, whoever asks how often, and where."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest

from gateway.channels.web.api.completion import ApiLimits
from shared.store.client.redis_client import RedisClient
from shared.store.turns.inbox import InboxLimits
from tests.gateway.channels.api.agui.runs import TOOL, Reader, events_of, run, user
from tests.gateway.channels.api.asking import (
    HELLO,
    Reported,
    answering,
    named,
    post,
    stream_of,
    working,
)
from tests.gateway.channels.api.by_hand import turn_by_hand
from tests.gateway.harness import TOKENS, gateway

SITE = "https://notes.example"


async def ask(address: str, body: object, **options: Any) -> Reported:
    return await post(address, body, path="/agui", **options)


async def test_a_thread_is_a_session_with_memory(redis_url: str) -> None:
    """The client sends the whole conversation each time, and its newest message is taken: the same session as that of
    chat completions with this name. What has no effect is named."""
    async with gateway(redis_url) as at, working(redis_url) as worker:
        found = await ask(at.address, run(user("hello"), state={"a": 1}))
        assert (found.status, found.headers["content-type"]) == (200, "text/event-stream; charset=utf-8")
        assert found.headers["shoal-ignored"] == "state"
        reader = Reader().read(events_of(found.body))
        assert reader.text == "you said: hello"
        assert reader.last == {"type": "RUN_FINISHED", "threadId": "a", "runId": "r1", "outcome": {"type": "success"}}
        second = await ask(at.address, run(user("hello"), *reader.messages(), user("and?", "u2"), run="r2"))
        assert Reader().read(events_of(second.body)).text == "you said: and?"
        await post(at.address, HELLO | {"user": "a"})
    assert [session for session, _ in worker.turns] == [named("a")] * 3


async def test_the_same_run_is_replayed_at_any_gateway(redis_url: str) -> None:
    """Twenty requests at two gateways at once are one turn, and a later one gets the same bytes."""
    body = run(user("hello"))
    async with gateway(redis_url) as one, gateway(redis_url) as other, working(redis_url) as worker:
        found = await asyncio.gather(*(ask((one, other)[n % 2].address, body) for n in range(20)))
        later = await ask(other.address, body)
        assert {Reader().read(events_of(each.body)).text for each in (*found, later)} == {"you said: hello"}
        assert len(worker.turns) == 1
        assert len({each.headers["x-request-id"] for each in (*found, later)}) == 1
        other_message = await ask(other.address, run(user("something else", "u2")))
        assert (other_message.status, other_message.error["code"]) == (422, "idempotency_key_reused")
        assert "run 'r1' of thread 'a'" in other_message.error["message"]


async def test_a_message_is_answered_once_whichever_run_brings_it(redis_url: str) -> None:
    """A client that lost its answer asks with a fresh id of a run. In another thread, and of another person, the same
    ids are other messages."""
    async with gateway(redis_url) as at, working(redis_url) as worker:
        for fields in ({}, {"run": "r2"}, {"run": "r3"}, {"thread": "b"}):
            found = await ask(at.address, run(user("hello"), **fields))
            assert Reader().read(events_of(found.body)).text == "you said: hello"
        await ask(at.address, run(user("hello")), token=TOKENS["ann"])
        assert [session for session, _ in worker.turns] == [named("a"), named("b"), named("a", "ann")]


async def test_messages_that_are_new_are_asked_together(redis_url: str) -> None:
    """One that was accepted before is not taken again, also if it got no answer that the client knows."""
    async with gateway(redis_url) as at, working(redis_url):
        first = await ask(at.address, run(user("one", "u2")))
        second = await ask(at.address, run(user("zero"), user("one", "u2"), user("two", "u3"), run="r2"))
    assert Reader().read(events_of(first.body)).text == "you said: one"
    assert Reader().read(events_of(second.body)).text == "you said: zero\n\ntwo"


async def test_a_client_that_lost_its_stream_gets_the_rest_at_another_gateway(
    redis_url: str, client: RedisClient
) -> None:
    """The turn goes on meanwhile. What the client has is not sent again."""
    body = run(user("hello"))
    async with gateway(redis_url) as one, gateway(redis_url) as other:
        reader = Reader()
        async with stream_of(one.address, body, path="/agui") as stream, turn_by_hand(client) as turn:
            await turn.show("The first half")
            data = await stream.readuntil(b'half"}\n\n')
            reader.read(events_of(b"\n\n".join(re.findall(rb"data: \{.*\}", data))))
            await turn.end("The first half and the second.")
        again = run(user("hello"), *reader.messages())
        rest = events_of((await ask(other.address, again)).body)
        assert [event.get("delta") for event in rest if "delta" in event] == [" and the second."]
        assert reader.read(rest).text == "The first half and the second."


async def test_stop_is_a_message_and_cancels_the_run(redis_url: str, client: RedisClient) -> None:
    async with gateway(redis_url) as at:
        running = asyncio.create_task(ask(at.address, run(user("hello"))))
        async with turn_by_hand(client) as turn:
            await turn.show("The first half")
            stopped = await ask(at.address, run(user("hello"), user("/stop", "u2"), run="r2"))
            assert "stop" in Reader().read(events_of(stopped.body)).text.lower()
            await turn.end("The first half", kind="stopped")
            reader = Reader().read(events_of((await running).body))
    assert (reader.text, reader.last["outcome"]) == ("The first half", {"type": "cancelled"})


async def test_a_turn_that_failed_is_an_error_of_the_run_also_when_it_is_replayed(
    redis_url: str, client: RedisClient
) -> None:
    line = {"content": "Sorry.", "kind": "apology", "failed": "context_length"}
    async with gateway(redis_url) as at, answering(client, line) as asked:
        for _ in range(2):
            found = await ask(at.address, run(user("hello")))
            last = Reader().read(events_of(found.body)).last
            assert (found.status, last["code"], last["message"]) == (200, "context_length_exceeded", "Sorry.")
    assert len(asked) == 1


async def test_functions_and_context_travel_with_the_message(redis_url: str, client: RedisClient) -> None:
    body = run(user("hello"), tools=[TOOL], context=[{"description": "Page", "value": "prices"}])
    async with gateway(redis_url) as at, answering(client, {"content": "hi"}) as asked:
        await ask(at.address, body)
    [message] = asked
    assert message.content == "hello\n\n[context of the application]\nPage: prices"
    assert message.options is not None
    assert [tool.name for tool in message.options.tools] == ["get_weather"]


async def test_token_origin_size_and_rate_are_those_of_the_api(redis_url: str) -> None:
    limits = ApiLimits(body_bytes=300_000, burst=2, per_s=0.001)
    async with gateway(redis_url, allowed_origins=(SITE,), api_limits=limits) as at:
        wrong = await ask(at.address, run(user("hello")), token="wrong")
        assert (wrong.status, wrong.error["code"]) == (401, "invalid_api_key")
        strange = await ask(at.address, run(user("hello")), headers={"Origin": "https://evil.example"})
        assert (strange.status, strange.error["code"]) == (403, "origin_not_allowed")
        bad = await ask(at.address, run(), headers={"Origin": SITE})
        assert (bad.status, bad.error["param"]) == (400, "messages")
        assert bad.headers["access-control-allow-origin"] == SITE
        big = await ask(at.address, run(user("x" * 400_000)))
        assert (big.status, big.error["code"]) == (413, "too_big")
        many = await ask(at.address, run())
        assert (many.status, many.error["code"]) == (429, "rate_limited")
        preflight = await ask(
            at.address,
            method="OPTIONS",
            body=None,
            token=None,
            headers={"Origin": SITE, "Access-Control-Request-Method": "POST"},
        )
        assert preflight.headers["access-control-allow-origin"] == SITE


async def test_a_person_s_limit_of_messages_counts(redis_url: str) -> None:
    limits = InboxLimits(sender_per_minute=1)
    async with gateway(redis_url, inbox_limits=limits) as at, working(redis_url):
        assert (await ask(at.address, run(user("hello")))).status == 200
        found = await ask(at.address, run(user("again", "u2"), run="r2"))
    assert (found.status, found.error["code"]) == (429, "sender_limit")


async def test_results_that_nothing_waits_for_are_refused(redis_url: str) -> None:
    body = run(user("hello"), {"id": "t", "role": "tool", "toolCallId": "c1", "content": "x"})
    async with gateway(redis_url) as at:
        found = await ask(at.address, body)
    assert (found.status, found.error["code"]) == (400, "no_such_call")


@pytest.mark.parametrize(("agui", "method", "status"), [(True, "GET", 405), (False, "POST", 404)])
async def test_there_is_no_such_address_unless_it_is_on(redis_url: str, agui: bool, method: str, status: int) -> None:
    """Errors are those of the API in any case."""
    async with gateway(redis_url, agui=agui) as at:
        found = await ask(at.address, run(user("hello")), method=method)
    assert found.status == status
    assert found.error["code"] in ("unknown_url", "method_not_allowed")
