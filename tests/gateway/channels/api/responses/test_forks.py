"""Responses that continue one which is not the newest of its session: forks."""

from __future__ import annotations

import asyncio
from typing import Any

import openai as official
import pytest

from shared.ids import is_stored
from shared.messages.codec import encode
from shared.messages.inbound import OWN_HISTORY
from shared.messages.transcript import AssistantEntry, UserEntry, decode_transcript
from shared.store import keys
from shared.store.client.redis_client import RedisClient
from tests.gateway.channels.api.asking import asker, asking, named, post, waiting_message, working
from tests.gateway.channels.api.by_hand import turn_by_hand
from tests.gateway.harness import TOKENS, gateway

PATH = "/v1/responses"


def says(text: str, **more: Any) -> Any:
    return {"model": "shoal", "input": text, **more}


def session_of(response: Any) -> str:
    return f"api:owner/~-{response.id.removeprefix('resp_')}"


def talk_of(*texts: str) -> tuple[UserEntry | AssistantEntry, ...]:
    """The conversation that a fork begins with."""
    pairs = [(UserEntry(content=one, turn=0), AssistantEntry(content=f"you said: {one}", turn=0)) for one in texts]
    return tuple(entry for pair in pairs for entry in pair)


async def test_an_older_response_is_forked(redis_url: str, client: RedisClient) -> None:
    """The new session begins with the conversation up to it; the old one goes on as if nothing had been."""
    async with gateway(redis_url) as at, asker(at.address) as one:
        async with working(redis_url):
            first = await one.responses.create(**says("a"))
            second = await one.responses.create(**says("b"), previous_response_id=first.id)
            third = await one.responses.create(**says("c"), previous_response_id=second.id)
        async with asking(at.address, says("d", previous_response_id=second.id), path=PATH) as asked:
            async with turn_by_hand(client) as turn:
                message = turn.message
                assert is_stored(turn.claim.session)
                await turn.end("forked")
            fork = (await asked).json
        assert (fork["status"], fork["previous_response_id"]) == ("completed", second.id)
        assert (message.content, message.history) == ("d", talk_of("a", "b"))
        assert (message.sources, message.metadata) == ((), {OWN_HISTORY: "1"})
        async with working(redis_url):
            await one.responses.create(**says("e"), previous_response_id=third.id)
    texts = [one.content async for one in entries(client, session_of(first))]
    assert texts == ["a", "you said: a", "b", "you said: b", "c", "you said: c", "e", "you said: e"]


async def entries(client: RedisClient, session: str) -> Any:
    for record in await client.command("LRANGE", keys.history(session), 0, -1):
        yield decode_transcript(record)


async def test_a_fork_is_continued_and_forked_again(redis_url: str, client: RedisClient) -> None:
    """A fork has all of its conversation, whoever began it."""
    async with gateway(redis_url) as at, working(redis_url), asker(at.address) as one:
        first = await one.responses.create(**says("a"))
        await one.responses.create(**says("b"), previous_response_id=first.id)
        fork = await one.responses.create(**says("c"), previous_response_id=first.id)
        await one.responses.create(**says("d"), previous_response_id=fork.id)
        again = await one.responses.create(**says("e"), previous_response_id=fork.id)
    texts = [one.content async for one in entries(client, session_of(fork))]
    assert texts == ["a", "you said: a", "c", "you said: c", "d", "you said: d"]
    texts = [one.content async for one in entries(client, session_of(again))]
    assert texts == ["a", "you said: a", "c", "you said: c", "e", "you said: e"]


async def test_a_response_is_forked_while_its_chain_runs(redis_url: str, client: RedisClient) -> None:
    """The one that runs can be neither continued nor forked: it has no answer yet."""
    async with gateway(redis_url) as at, asker(at.address) as one:
        async with working(redis_url):
            first = await one.responses.create(**says("a"))
        running = await one.responses.create(**says("b"), previous_response_id=first.id, background=True)
        with pytest.raises(official.ConflictError) as busy:
            await one.responses.create(**says("x"), previous_response_id=running.id)
        assert busy.value.code == "conversation_busy"
        fork = await one.responses.create(**says("c"), previous_response_id=first.id, background=True)
        message = await waiting_message(client, session_of(fork))
        assert message.history == talk_of("a")
        async with turn_by_hand(client) as turn:
            await turn.end("on time")
        assert (await one.responses.retrieve(running.id)).output_text == "on time"


async def test_a_response_of_a_named_session_is_forked_out_of_it(redis_url: str, client: RedisClient) -> None:
    """The session stays as it is; marks and the conversation come along, `/new` ends what can."""
    async with gateway(redis_url) as at, working(redis_url), asker(at.address) as one:
        first = await one.responses.create(**says("a"), conversation="n")
        await client.command("RPUSH", keys.history(named("n")), mark_of(1))
        second = await one.responses.create(**says("b"), conversation="n")
        fork = await one.responses.create(**says("c"), previous_response_id=first.id)
        assert (fork.output_text, fork.conversation) == ("you said: c", None)
        await one.responses.create(**says("/new"), conversation="n")
        refused = await post(at.address, says("d", previous_response_id=second.id), path=PATH)
        assert (refused.status, refused.error["code"]) == (400, "previous_response_not_newest")
    found = [one async for one in entries(client, session_of(fork))]
    assert [one.content for one in found] == ["a", "you said: a", "seen", "c", "you said: c"]
    assert found[2].sources == ("evil.example",)
    assert await client.command("LLEN", keys.history(named("n"))) == 0


def mark_of(turn: int) -> bytes:
    return encode(AssistantEntry(content="seen", turn=turn, sources=("evil.example",)))


async def test_a_fork_is_marked_with_what_its_conversation_read(redis_url: str, client: RedisClient) -> None:
    async with gateway(redis_url) as at, asker(at.address) as one:
        async with working(redis_url):
            first = await one.responses.create(**says("a"))
            await client.command("RPUSH", keys.history(session_of(first)), mark_of(1))
            await one.responses.create(**says("b"), previous_response_id=first.id)
        fork = await one.responses.create(**says("c"), previous_response_id=first.id, background=True)
        message = await waiting_message(client, session_of(fork))
    assert message.sources == ("evil.example",)


async def test_a_forked_request_is_one_turn_under_its_key(redis_url: str) -> None:
    """Repeated at once at two gateways, while it runs and afterwards; so is one that continued the newest response,
    which is the newest no more."""
    key = {"Idempotency-Key": "k1"}
    plain = {"Idempotency-Key": "k2"}
    async with gateway(redis_url) as a, gateway(redis_url) as b, asker(a.address) as one:
        async with working(redis_url) as worker:
            first = await one.responses.create(**says("a"))
            continued = says("b", previous_response_id=first.id)
            newest = await one.responses.create(**continued, extra_headers=plain)
            body = says("c", previous_response_id=first.id)
            both = await asyncio.gather(*(post(at.address, body, path=PATH, headers=key) for at in (a, b, a, b)))
            assert [one.status for one in both] == [200] * 4
            assert len({one.body for one in both}) == 1
            assert (await post(b.address, body, path=PATH, headers=key)).body == both[0].body
            assert await one.responses.create(**continued, extra_headers=plain) == newest
        assert len(worker.turns) == 3


async def test_another_tokens_response_is_not_forked(redis_url: str) -> None:
    """It is as unknown as one that does not exist."""
    async with gateway(redis_url) as at, working(redis_url), asker(at.address) as one:
        first = await one.responses.create(**says("a"))
        await one.responses.create(**says("b"), previous_response_id=first.id)
        async with asker(at.address, TOKENS["ann"]) as ann:
            with pytest.raises(official.NotFoundError) as refused:
                await ann.responses.create(**says("c"), previous_response_id=first.id)
    assert refused.value.code == "response_not_found"


async def test_a_fork_ends_with_its_last_response(redis_url: str, client: RedisClient) -> None:
    """Nothing of it is left, and the conversation that it came from stays."""
    async with gateway(redis_url) as at, working(redis_url), asker(at.address) as one:
        first = await one.responses.create(**says("a"))
        await one.responses.create(**says("b"), previous_response_id=first.id)
        fork = await one.responses.create(**says("c"), previous_response_id=first.id)
        due_ms = float(await client.command("ZSCORE", keys.EPHEMERAL, session_of(fork)))
        assert due_ms - fork.created_at * 1000 > 29 * 86_400_000
        await one.responses.delete(fork.id)
    assert await client.command("EXISTS", keys.history(session_of(fork)), keys.session(session_of(fork))) == 0
    assert await client.command("EXISTS", keys.history(session_of(first))) == 1
