"""Chats of pages that use the AI SDK: one turn a message, streams that are followed anywhere, errors in words."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

from gateway.channels.web.api.completion import ApiLimits
from shared.store.client.redis_client import RedisClient
from tests.gateway.channels.api.aisdk.test_fold import Reader
from tests.gateway.channels.api.aisdk.test_request import answered, called, file, message, text
from tests.gateway.channels.api.asking import (
    Reported,
    answering,
    asker,
    named,
    post,
    stream_of,
    waiting_message,
    working,
)
from tests.gateway.channels.api.by_hand import turn_by_hand
from tests.gateway.channels.api.responses.test_stored import stop_requested
from tests.gateway.harness import gateway
from tests.helpers.wait import eventually

CHAT = "/aisdk/chat"
SITE = "https://notes.example"


def body(*messages: Any, **fields: Any) -> dict[str, Any]:
    return {"id": "c", "messages": list(messages) or [message(text())], "trigger": "submit-message"} | fields


async def send(address: str, *messages: Any, **options: Any) -> Reported:
    """One request of a page, with its whole answer."""
    return await post(address, body(*messages), **{"path": CHAT} | options)


async def get(address: str, chat: str = "c", **options: Any) -> Reported:
    return await post(address, path=f"{CHAT}/{chat}/stream", method="GET", **options)


def message_of(reported: Reported) -> Reader:
    """The message that a stream tells."""
    assert reported.status == 200, reported.body
    assert reported.headers["x-vercel-ai-ui-message-stream"] == "v1"
    assert reported.headers["content-type"] == "text/event-stream; charset=utf-8"
    reader = Reader()
    reader.add(reported.body)
    assert reader.kinds[-1] == "done"
    return reader


def words(reported: Reported, status: int) -> str:
    """The body of an error: a sentence that people read."""
    assert (reported.status, reported.headers["content-type"]) == (status, "text/plain; charset=utf-8")
    sentence = reported.body.decode()
    assert sentence.endswith((".", "…"))
    return sentence


async def follow(reader: Reader, address: str, asked: Any, resume: str = "") -> None:
    """Read a stream to its end."""
    path, method = (f"{CHAT}/{resume}/stream", "GET") if resume else (CHAT, "POST")
    async with stream_of(address, asked, path=path, method=method) as stream:
        assert b" 200 " in await stream.readline()
        while line := await stream.readline():
            # Lines of headers and of the chunked encoding are no part of an event.
            if line.startswith(b"data: "):
                reader.add(line + b"\n")


@contextlib.asynccontextmanager
async def listening(address: str, asked: Any = None, *, resume: str = "") -> AsyncIterator[Reader]:
    """A stream that is read beside the test, until the block ends."""
    reader = Reader()
    task = asyncio.create_task(follow(reader, address, asked, resume))
    try:
        yield reader
    finally:
        task.cancel()
        await asyncio.wait([task])


async def shows(reader: Reader, text: str) -> None:
    await eventually(lambda: reader.text == text, within_s=30, what=f"the text {text!r}, not {reader.text!r}")


async def test_a_message_is_answered_in_the_session_of_its_chat(redis_url: str, client: RedisClient) -> None:
    """With its files; the answer's id is that of a response, which can be read."""
    async with gateway(redis_url) as at, asker(at.address) as one, answering(client, {"content": "hi"}) as asked:
        reader = message_of(await send(at.address, message(text(), file(filename="a.txt"))))
        assert (reader.text, reader.finish) == ("hi", "stop")
        assert reader.id is not None
        assert (await one.responses.retrieve(reader.id)).output_text == "hi"
        [got] = asked
        assert (got.session, got.content, len(got.media)) == (named("c"), "hello", 1)
        message_of(await send(at.address, message(text("and?"), id="m2"), token="anns-secret"))
        assert asked[1].session == named("c", "ann")


async def test_a_message_that_is_sent_again_is_one_turn(redis_url: str, client: RedisClient) -> None:
    """At another gateway, while it runs and after it; with another text it is refused in words."""
    async with gateway(redis_url) as a, gateway(redis_url) as b:
        async with listening(a.address, body()) as one, listening(b.address, body()) as other:
            async with turn_by_hand(client) as turn:
                await turn.show("Once")
                await shows(one, "Once")
                await turn.end("Once upon a time")
            await asyncio.gather(shows(one, "Once upon a time"), shows(other, "Once upon a time"))
        assert one.id == other.id
        again = message_of(await send(b.address))
        assert (again.text, again.id) == ("Once upon a time", one.id)
        edited = words(await send(a.address, message(text("goodbye"))), 409)
        assert edited == (
            "This message was answered before with another text, and what was said stays in the conversation; "
            "send the new text as a new message."
        )


async def test_a_running_answer_is_resumed_at_another_gateway(redis_url: str, client: RedisClient) -> None:
    """From its beginning, with what stands on screens already; when it is over there is nothing to resume."""
    async with gateway(redis_url) as a, gateway(redis_url) as b:
        assert (await get(b.address)).status == 204
        async with turn_after(client, a.address) as (turn, first):
            await turn.show("Once")
            await shows(first, "Once")
            async with listening(b.address, resume="c") as second:
                await eventually(lambda: second.id is not None, within_s=30)
                assert second.id == first.id
                await show_until(turn, second, "Once upon")
                await turn.end("Once upon a time")
                await shows(second, "Once upon a time")
                assert second.kinds.count("text-start") == 1
                await shows(first, "Once upon a time")
        nothing = await get(b.address)
        assert (nothing.status, nothing.body, nothing.headers["cache-control"]) == (204, b"", "no-store")


@contextlib.asynccontextmanager
async def turn_after(client: RedisClient, address: str, *messages: Any) -> AsyncIterator[tuple[Any, Reader]]:
    """A message whose stream is read, and its turn."""
    async with listening(address, body(*messages)) as reader, turn_by_hand(client) as turn:
        yield turn, reader


async def show_until(turn: Any, reader: Reader, text: str) -> None:
    """Show a whole text as often as a worker would, until a late reader has it."""

    async def shown() -> bool:
        await turn.show(text, full=True)
        return reader.text == text

    await eventually(shown, within_s=30, what="the text")


async def test_a_client_that_leaves_ends_nothing_and_stop_does(redis_url: str, client: RedisClient) -> None:
    """As `stop()` of a page, which only closes its connection; the route stops the turn, at any gateway."""
    async with gateway(redis_url) as a, gateway(redis_url) as b:
        page = contextlib.AsyncExitStack()
        first = await page.enter_async_context(listening(a.address, body()))
        async with turn_by_hand(client) as turn, listening(a.address, resume="c") as second:
            await turn.show("so")
            await shows(first, "so")
            await page.aclose()
            assert not await stop_requested(client, turn.claim.session)
            stopping = asyncio.create_task(post(b.address, path=f"{CHAT}/c/stop"))
            await eventually(lambda: stop_requested(client, turn.claim.session), within_s=30)
            await turn.end("so far", kind="stopped")
            stopped = await stopping
            await shows(second, "so far")
            await eventually(lambda: second.kinds[-1] == "done")
        assert (stopped.status, stopped.body) == (204, b"")
        assert second.kinds[-3:] == ["finish-step", "abort", "done"]
        assert (await post(b.address, path=f"{CHAT}/c/stop")).status == 204
        assert (await get(b.address)).status == 204


async def test_a_waiting_message_is_withdrawn(redis_url: str, client: RedisClient) -> None:
    """It gets no turn; its stream ends without an error."""
    async with gateway(redis_url) as at, listening(at.address, body()) as reader:
        await waiting_message(client, named("c"))
        await eventually(lambda: reader.id is not None)
        assert (await post(at.address, path=f"{CHAT}/c/stop")).status == 204
        await eventually(lambda: reader.kinds[-1] == "done")
        assert reader.kinds[-2] == "abort"
        assert reader.abort.startswith("The message was taken out of its session")


async def test_commands_are_answered(redis_url: str) -> None:
    """As in every named session."""
    async with gateway(redis_url) as at:
        assert "/help" in message_of(await send(at.address, message(text("/help")))).text


async def test_a_turn_that_fails_is_a_sentence(redis_url: str, client: RedisClient) -> None:
    """In its stream, also when its message is sent again."""
    line = {"content": "the model refused", "kind": "apology"}
    async with gateway(redis_url) as at, answering(client, line):
        for _ in range(2):
            reader = message_of(await send(at.address))
            assert (reader.error, reader.finish) == ("The model refused.", "")


async def test_errors_are_sentences_for_people(redis_url: str) -> None:
    """Whatever refuses: token, origin, body, address, method, size, rate."""
    limits = ApiLimits(burst=1, per_s=0.001, body_bytes=300_000)
    async with gateway(redis_url, allowed_origins=(SITE,), api_limits=limits) as at:
        wrong = await send(at.address, token="wrong", headers={"Origin": SITE})
        assert words(wrong, 401) == "A valid token is needed: Authorization: Bearer …"
        assert wrong.headers["access-control-allow-origin"] == SITE
        assert words(await get(at.address, token="wrong"), 401)
        assert words(await post(at.address, path=f"{CHAT}/c/stop", token=None), 401)
        assert words(await send(at.address, headers={"Origin": "https://evil.example"}), 403)
        assert words(await post(at.address, path="/aisdk/other"), 404) == "There is no POST /aisdk/other here."
        assert words(await post(at.address, path=CHAT, method="GET"), 405)
        assert words(await post(at.address, {}, path=CHAT, token="anns-secret"), 400) == "'id' is missing."
        assert "slow down" in words(await get(at.address, token="anns-secret"), 429)
        assert words(await send(at.address, message(text("x" * 400_000))), 413)


async def test_a_session_of_another_person_has_no_name_here(redis_url: str) -> None:
    async with gateway(redis_url) as at:
        assert "is not a name for one" in words(await get(at.address, "~x"), 400)
        assert (await get(at.address, "ann%2Fc")).status == 404


async def test_a_page_may_ask_before_it_has_a_token(redis_url: str) -> None:
    """CORS, as for every address of the API."""
    asks = {"Origin": SITE, "Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization"}
    async with gateway(redis_url, allowed_origins=(SITE,)) as at:
        found = await post(at.address, path=CHAT, method="OPTIONS", token=None, headers=asks)
    assert (found.status, found.headers["access-control-allow-origin"]) == (200, SITE)


async def test_there_is_no_such_address_when_it_is_off(redis_url: str) -> None:
    async with gateway(redis_url, aisdk=False) as at:
        assert words(await send(at.address), 404) == "There is no POST /aisdk/chat here."


async def test_a_gateway_that_leaves_says_so(redis_url: str, client: RedisClient) -> None:
    """In words, since a stream that just ends is a whole answer to the page; another one goes on."""
    async with gateway(redis_url) as b:
        async with gateway(redis_url) as a:
            reader = Reader()
            listener = asyncio.create_task(follow(reader, a.address, body()))
            await waiting_message(client, named("c"))
        await listener
        assert reader.kinds[-2:] == ["error", "done"]
        assert reader.error == "This gateway is going away; ask again."
        async with listening(b.address, resume="c") as second:
            await eventually(lambda: second.id is not None, within_s=30)
            async with working(redis_url):
                await eventually(lambda: second.kinds[-1:] == ["done"], within_s=30)
        assert (second.id, second.finish) == (reader.id, "stop")


async def test_results_for_nobody_are_refused_in_words(redis_url: str) -> None:
    """Nothing waits for them."""
    async with gateway(redis_url) as at:
        refused = words(await send(at.address, answered(called("output-available", output="x"))), 400)
        assert refused.startswith("No turn here waits for the result of c1")
