"""Responses in the background: answered at once, read when they are done."""

from __future__ import annotations

import asyncio
from typing import Any

import openai as official
import pytest
from openai.types.responses import Response

from shared.store.client.redis_client import RedisClient
from shared.store.turns.inbox import InboxLimits
from tests.gateway.channels.api.asking import answering, asker, asking, post, working
from tests.gateway.channels.api.by_hand import turn_by_hand
from tests.gateway.channels.api.responses.test_stored import stop_requested
from tests.gateway.harness import TOKENS, gateway, process
from tests.helpers.wait import eventually

PATH = "/v1/responses"
BACKGROUND: Any = {"model": "shoal", "input": "hello", "background": True}


async def finished(one: official.AsyncOpenAI, id: str) -> Response:
    """Poll as OpenAI's guide does, until the response has ended."""

    async def ended() -> Response:
        found = await one.responses.retrieve(id)
        assert found.status not in ("queued", "in_progress")
        return found

    return await eventually(ended, within_s=60, what="the end of a response")


async def test_a_background_response_is_polled_at_another_gateway(redis_url: str, client: RedisClient) -> None:
    """POST returns before there is a worker; the turn needs no connection."""
    async with gateway(redis_url) as a, gateway(redis_url) as b, asker(a.address) as one, asker(b.address) as other:
        made = await one.responses.create(**BACKGROUND)
        assert (made.status, made.background, made.output) == ("in_progress", True, [])
        assert (await other.responses.retrieve(made.id)) == made
        async with turn_by_hand(client) as turn:
            await turn.end("after all")
        done = await finished(other, made.id)
        assert (done.status, done.output_text, done.background) == ("completed", "after all", True)
        assert await one.responses.retrieve(made.id) == done


async def test_a_background_response_outlives_its_gateway(redis_url: str, client: RedisClient) -> None:
    """It is killed right after its answer."""
    with process(redis_url) as a, process(redis_url) as b:
        await asyncio.gather(a.ready(), b.ready())
        async with asker(a.address) as one:
            made = await one.responses.create(**BACKGROUND)
        a.popen.kill()
        async with asker(b.address) as other, answering(client, {"content": "still here"}):
            assert (await finished(other, made.id)).output_text == "still here"


async def test_a_running_background_response_is_cancelled(redis_url: str, client: RedisClient) -> None:
    """Cancelling works as for any other response; one that waits gets no turn."""
    async with gateway(redis_url) as at, asker(at.address) as one:
        waiting = await one.responses.create(**BACKGROUND)
        assert (await one.responses.cancel(waiting.id)).status == "cancelled"
        made = await one.responses.create(**BACKGROUND)
        async with turn_by_hand(client) as turn:
            cancelling = asyncio.create_task(one.responses.cancel(made.id))
            await eventually(lambda: stop_requested(client, turn.claim.session), within_s=60)
            await turn.end("so far", kind="stopped")
            cancelled = await cancelling
        assert (cancelled.status, cancelled.output_text) == ("cancelled", "so far")


async def test_a_background_response_is_streamed_and_continued(redis_url: str) -> None:
    """Streams have the same events in the background; the next response continues it."""
    async with gateway(redis_url) as at, working(redis_url), asker(at.address) as one:
        events = [event async for event in await one.responses.create(**BACKGROUND, stream=True)]
        assert (events[0].type, events[-1].type) == ("response.created", "response.completed")
        first = events[-1].response
        assert (first.background, first.output_text) == (True, "you said: hello")
        second = await one.responses.create(**BACKGROUND, previous_response_id=first.id)
        assert (await finished(one, second.id)).output_text == "you said: hello"


async def test_a_background_response_that_failed_is_read_as_failed(redis_url: str, client: RedisClient) -> None:
    """A repetition with its key is the same response in the state that it has by now."""
    line = {"content": "Sorry.", "kind": "apology", "failed": "error"}
    headers = {"Idempotency-Key": "k1"}
    async with gateway(redis_url) as at, asker(at.address) as one:
        made = await one.responses.create(**BACKGROUND, extra_headers=headers)
        async with answering(client, line) as asked:
            failed = await finished(one, made.id)
            assert (failed.status, failed.error is not None) == ("failed", True)
            assert await one.responses.create(**BACKGROUND, extra_headers=headers) == failed
    assert len(asked) == 1


async def test_a_background_response_must_be_stored(redis_url: str) -> None:
    """The refusal says what to do."""
    async with gateway(redis_url) as at:
        refused = await post(at.address, BACKGROUND | {"store": False}, path=PATH)
    assert (refused.status, refused.error["param"]) == (400, "background")
    assert "leave 'store' out" in refused.error["message"]


async def test_a_token_has_a_limit_of_unfinished_ones(redis_url: str) -> None:
    """The next one is 429 and leaves its key for later; another token, and one that waits for its answer, go on. Both
    gateways count the same ones, and one that was cancelled is not counted."""
    limits = InboxLimits(background_at_once=2)
    two = gateway(redis_url, inbox_limits=limits)
    key = {"Idempotency-Key": "k1"}
    async with gateway(redis_url, inbox_limits=limits) as a, two as b, asker(a.address) as one:
        first, _ = [await one.responses.create(**BACKGROUND) for _ in range(2)]
        refused = await post(b.address, BACKGROUND, path=PATH, headers=key)
        assert (refused.status, refused.error["code"]) == (429, "background_limit")
        assert refused.headers["retry-after"] == "5"
        async with asker(b.address, TOKENS["ann"]) as other:
            await other.responses.create(**BACKGROUND)
        async with asking(b.address, BACKGROUND | {"background": False, "stream": True}, path=PATH):
            assert (await one.responses.cancel(first.id)).status == "cancelled"
        assert (await post(b.address, BACKGROUND, path=PATH, headers=key)).status == 200
        assert (await post(a.address, BACKGROUND, path=PATH)).status == 429
        async with working(redis_url):
            await eventually(lambda: accepted_again(a.address), within_s=60)


async def accepted_again(address: str) -> bool:
    return (await post(address, BACKGROUND, path=PATH)).status == 200


@pytest.mark.parametrize("background", [None, False])
async def test_without_background_the_answer_is_waited_for(redis_url: str, background: bool | None) -> None:
    async with gateway(redis_url) as at, working(redis_url), asker(at.address) as one:
        made = await one.responses.create(**BACKGROUND | {"background": background})
    assert (made.status, made.background) == ("completed", False)
