"""Streams while a turn runs: what a client sees when workers, gateways, tokens and Redis come and go."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import openai as official
import pytest

from gateway.channels.web.api.completion import ApiLimits
from gateway.channels.web.http.auth import Principals
from shared.embedded import EmbeddedValkey
from shared.messages.transcript import ApprovalEntry
from shared.store import keys
from shared.store.client.redis_client import RedisClient
from shared.store.delivery.outbox import Outbox
from shared.store.turns.turn_writes import Turns
from tests.gateway.channels.api.asking import (
    HELLO,
    asker,
    asking,
    error_in,
    named,
    none_left,
    post,
    read,
    stream_of,
    waiting_message,
    working,
)
from tests.gateway.channels.api.by_hand import TurnByHand, turn_by_hand
from tests.gateway.harness import gateway
from tests.helpers.parked import ask
from tests.helpers.wait import eventually

STREAM = HELLO | {"stream": True}


class Received:
    """What a stream has said so far, and how it ended."""

    def __init__(self) -> None:
        self.text = ""
        self.ended = False
        self.failed: official.APIError | None = None


@contextlib.asynccontextmanager
async def hearing(address: str, **asked: Any) -> AsyncIterator[Received]:
    """A stream that is read with OpenAI's client beside the test."""
    received = Received()

    async def listen() -> None:
        async with asker(address) as client:
            stream = await client.chat.completions.create(**{**HELLO, **asked}, stream=True)
            try:
                async for chunk in stream:
                    for choice in chunk.choices:
                        received.text += choice.delta.content or ""
                        received.ended = choice.finish_reason is not None
            except official.APIError as exc:
                received.failed = exc

    task = asyncio.create_task(listen())
    try:
        yield received
    finally:
        if not received.ended and received.failed is None:
            task.cancel()
        await asyncio.wait([task])


async def sent(received: Received, text: str) -> None:
    await eventually(lambda: received.text == text, within_s=60, what=lambda: f"{text!r}, not {received.text!r}")


async def test_text_comes_while_it_is_written(redis_url: str, client: RedisClient) -> None:
    """Piece by piece, and the last line brings what was not shown."""
    async with gateway(redis_url) as at, hearing(at.address) as received, turn_by_hand(client) as turn:
        await turn.show("Once")
        await sent(received, "Once")
        await turn.show(" upon")
        await sent(received, "Once upon")
        await turn.show("Once upon", full=True)
        await turn.show(" a ")
        await sent(received, "Once upon a")
        await turn.end("Once upon a time")
        await eventually(lambda: received.ended)
        assert received.text == "Once upon a time"


@pytest.mark.parametrize(
    ("second", "whole"),
    [
        ("Once upon a time", "Once upon a time"),
        ("Once", "Once upon\n\nOnce"),
        ("It was", "Once upon\n\nIt was"),
    ],
    ids=["the same", "shorter", "another"],
)
async def test_a_worker_that_is_replaced_repeats_nothing(
    redis_url: str, client: RedisClient, second: str, whole: str
) -> None:
    """What was sent stays; the second attempt is sent from where it goes beyond it, or as a paragraph of its own."""
    async with gateway(redis_url) as at, hearing(at.address) as received, turn_by_hand(client) as turn:
        await turn.show("Once upon")
        await sent(received, "Once upon")
        for piece in (second[:2], second[2:]):
            await turn.show(piece, attempt=2)
        await turn.show(" late words of the first", attempt=1)
        await turn.end(second)
        await eventually(lambda: received.ended)
        assert received.text == whole


async def test_what_the_agent_says_beside_its_reply_is_in_the_answer(redis_url: str, client: RedisClient) -> None:
    """The message tool: said at once in a stream, and part of a whole answer; a turn that spoke ends without text."""
    async with gateway(redis_url) as at, hearing(at.address, user="a") as received, turn_by_hand(client) as turn:
        await turn.show("Let me see")
        await sent(received, "Let me see")
        await turn.say("I found it.", buttons=("more",))
        await sent(received, "Let me see\n\nI found it.\n[more]")
        await turn.say("It is here.")
        await turn.end("")
        await eventually(lambda: received.ended)
        assert received.text == "Let me see\n\nI found it.\n[more]\n\nIt is here."
        async with asking(at.address, HELLO | {"user": "a"}) as asked, turn_by_hand(client) as turn:
            await turn.say("First.")
            await turn.end("Last.")
            assert (await asked).json["choices"][0]["message"]["content"] == "First.\n\nLast."


async def test_a_message_that_joins_a_turn_is_shown_that_turns_text(redis_url: str, client: RedisClient) -> None:
    """Its own number is not the turn's; one reply answers both."""
    async with gateway(redis_url) as at, hearing(at.address, user="a") as first, turn_by_hand(client) as turn:
        async with hearing(at.address, user="a") as second:
            await eventually(lambda: inbox_size(client, named("a"), 2), within_s=60)
            await turn.joins(2)
            await turn.show("for both", full=True)
            await asyncio.gather(sent(first, "for both"), sent(second, "for both"))


async def inbox_size(client: RedisClient, session: str, size: int) -> bool:
    return bool(await client.command("XLEN", keys.inbox(session)) == size)


async def test_a_silent_stream_says_that_it_lives(
    redis_url: str, client: RedisClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A comment of the protocol, so that no proxy takes the connection for dead; clients pass over it."""
    monkeypatch.setattr("gateway.channels.web.api.completion.TICK_S", 0.1)
    limits = ApiLimits(alive_s=0.2)
    async with gateway(redis_url, api_limits=limits) as at:
        async with stream_of(at.address, STREAM) as reader, turn_by_hand(client) as turn:
            async with asyncio.timeout(20):
                await reader.readuntil(b": keep-alive\n\n")
                await turn.end("done")
                rest = await reader.read()
        assert b"data: [DONE]" in rest


@pytest.mark.parametrize("stream", [False, True])
async def test_a_client_that_goes_away_ends_the_turn_of_its_request_alone(
    redis_url: str, client: RedisClient, stream: bool
) -> None:
    """Nobody could ever ask for the answer: the turn loses its lease, nothing of the session is left."""
    async with gateway(redis_url) as at:
        async with stream_of(at.address, HELLO | {"stream": stream}) as reader, turn_by_hand(client) as turn:
            if stream:
                await reader.readuntil(b'"assistant"')
        await eventually(lambda: none_left(client), within_s=60)
        assert await client.command("HGETALL", keys.leases("turns")) == []
        assert turn.number == 1
        await eventually(lambda: at.channel.facts()["web.requests"] == "0")


@pytest.mark.parametrize("asked", [{"body": HELLO | {"user": "a"}}, {"headers": {"Idempotency-Key": "k"}}])
async def test_a_turn_goes_on_without_its_client_when_its_answer_can_be_had(
    redis_url: str, client: RedisClient, asked: dict[str, Any]
) -> None:
    """In a session it is part of the conversation; with a key it is there for who asks again."""
    async with gateway(redis_url) as at:
        async with stream_of(at.address, **{"body": HELLO, **asked}), turn_by_hand(client) as turn:
            pass
        await eventually(lambda: at.channel.facts()["web.requests"] == "0", within_s=60)
        await turn.end("still here")
        [line] = await Outbox(client).read_after(turn.claim.session, after=0)
        assert line.seq == 1
        if "headers" in asked:
            again = await post(at.address, HELLO, headers=asked["headers"])
            assert again.json["choices"][0]["message"]["content"] == "still here"


async def test_a_revoked_token_ends_its_streams(redis_url: str, client: RedisClient, tmp_path: Path) -> None:
    """Checked while the stream runs, and for each request anew."""
    file = tmp_path / "token"
    file.write_text("before")
    async with gateway(redis_url, principals=Principals({}, {"owner": file})) as at:
        async with stream_of(at.address, STREAM, token="before") as reader, turn_by_hand(client):
            await reader.readuntil(b'"assistant"')
            file.write_text("afterwards")
            result = await asyncio.wait_for(reader.read(), 20)
        error = error_in(result)
        assert (error["code"], error["type"]) == ("invalid_api_key", "invalid_request_error")
        assert (await post(at.address, HELLO, token="before")).status == 401
        async with working(redis_url):
            assert (await post(at.address, HELLO, token="afterwards")).status == 200


@pytest.mark.parametrize("stream", [False, True])
async def test_redis_that_stays_away_is_an_error_in_openais_form(
    valkey: EmbeddedValkey, redis_url: str, client: RedisClient, stream: bool
) -> None:
    """A short absence is outlived; a long one is a 503, or the error event of a stream that has begun."""
    limits = ApiLimits(away_s=1.0)
    async with gateway(redis_url, api_limits=limits) as at:
        async with stream_of(at.address, HELLO | {"stream": stream}) as reader:
            await waiting_message(client)
            if stream:
                await reader.readuntil(b'"assistant"')
            valkey.kill()
            if stream:
                rest = await asyncio.wait_for(reader.read(), 30)
                error = error_in(rest)
            else:
                result = await read(reader)
                assert (result.status, result.headers["retry-after"]) == (503, "1")
                assert result.headers["x-should-retry"] == "true", "nothing is left of a request without a session"
                error = result.error
            assert (error["code"], error["type"]) == ("unavailable", "server_error")
            valkey.restart()


async def test_redis_that_comes_back_costs_a_stream_nothing(
    valkey: EmbeddedValkey, redis_url: str, client: RedisClient
) -> None:
    """The log is read when it is there again."""
    async with gateway(redis_url) as at, hearing(at.address, user="a") as received, turn_by_hand(client) as turn:
        await turn.show("Once")
        await sent(received, "Once")
        valkey.restart()

        async def back() -> bool:
            with contextlib.suppress(Exception):
                await turn.end("Once more")
                return True
            return False

        await eventually(back, within_s=60)
        await eventually(lambda: received.ended, within_s=60)
        assert received.text == "Once more"


async def test_a_gateway_that_goes_away_ends_what_it_cannot_finish(redis_url: str, client: RedisClient) -> None:
    """New requests are refused at once; those under way have a moment, and are then told to ask another gateway."""
    async with gateway(redis_url) as at:
        async with (
            stream_of(at.address, STREAM, headers={"Idempotency-Key": "k"}) as streamed,
            asking(at.address, HELLO | {"user": "a"}) as whole,
            turn_by_hand(client),
        ):
            await eventually(lambda: at.channel.facts()["web.requests"] == "2")
            at.stop.set()
            refused = await post(at.address, HELLO)
            assert (refused.status, refused.error["code"], refused.headers["retry-after"]) == (503, "closing", "1")
            rest = await asyncio.wait_for(streamed.read(), 30)
            result = await whole
        assert error_in(rest)["code"] == "closing"
        assert (result.status, result.error["code"]) == (503, "closing")
        assert result.headers["x-should-retry"] == "false", "a message in a session, sent again, is another one"


async def test_a_question_that_nobody_can_answer_is_a_no(redis_url: str, client: RedisClient) -> None:
    """Of a request alone there is no chat to say yes in; in a named session the question is shown, and waits."""
    async with gateway(redis_url) as at:
        async with asking(at.address, HELLO) as asked, turn_by_hand(client) as turn:
            await ask_whether(client, turn)
            await eventually(lambda: decided(client, turn), within_s=60)
            async with turn_by_hand(client) as again:
                await again.end("then not")
            assert (await asked).status == 200
        async with hearing(at.address, user="a") as received, turn_by_hand(client) as turn:
            await ask_whether(client, turn)
            await eventually(lambda: "exec" in received.text, within_s=60)
            assert not await decided(client, turn)


async def ask_whether(client: RedisClient, turn: TurnByHand) -> None:
    question = ApprovalEntry(
        id="0123456789", call_id="c1", turn=turn.number, tool="exec", digest="d" * 64, arguments='{"command": "ls"}'
    )
    assert await ask(Turns(client), turn.claim, 1, question)


async def decided(client: RedisClient, turn: TurnByHand) -> bool:
    asked = await client.command("HGET", keys.session(turn.claim.session), "asked")
    return bool(asked.startswith(b"no "))


async def test_a_session_that_is_forgotten_while_it_answers_says_so(redis_url: str, client: RedisClient) -> None:
    """/new from elsewhere takes the message with it: 409, and no retry."""
    async with gateway(redis_url) as at, asking(at.address, HELLO | {"user": "a"}) as asked, turn_by_hand(client):
        new = await post(at.address, {"model": "shoal", "messages": [{"role": "user", "content": "/new"}], "user": "a"})
        assert new.status == 200
        result = await asked
    assert (result.status, result.error["code"], result.headers["x-should-retry"]) == (409, "turn_dropped", "false")


async def test_one_stream_that_nobody_reads_holds_nobody_up(redis_url: str, client: RedisClient) -> None:
    """What comes meanwhile is kept as one text, not as a queue of pieces."""
    async with gateway(redis_url) as at, stream_of(at.address, STREAM | {"user": "a"}), turn_by_hand(client) as turn:
        await turn.show("x" * 60_000)
        for _ in range(100):
            await turn.show("y" * 60_000)
        async with hearing(at.address, user="b") as received, turn_by_hand(client) as other:
            await other.end("quick")
            await eventually(lambda: received.ended, within_s=60)
