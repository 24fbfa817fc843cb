"""One key is one turn: whoever asks, how often, through which gateway, and whatever dies in between."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from typing import Any

import openai as official
import pytest

from shared.ids import KEEP_MS
from shared.messages.outbound import decode_answer
from shared.settings import MediaSettings
from shared.store import keys
from shared.store.client.redis_client import RedisClient
from shared.store.sessions.requests import ANSWER_LIMIT_BYTES
from shared.store.turns.inbox import InboxLimits
from shared.tasks import cancel_all
from tests.gateway.channels.api.asking import (
    HELLO,
    answering,
    asker,
    asking,
    left_behind,
    none_left,
    post,
    stream_of,
    text_of,
    user,
    waiting_message,
    working,
)
from tests.gateway.channels.api.by_hand import turn_by_hand
from tests.gateway.harness import gateway, process
from tests.helpers.wait import eventually

KEY = {"Idempotency-Key": "3f1e7c52"}
STREAM = HELLO | {"stream": True}


def content(result: Any) -> str:
    return str(result.json["choices"][0]["message"]["content"])


@pytest.mark.parametrize("body", [HELLO, HELLO | {"user": "a"}], ids=["alone", "session"])
async def test_twenty_requests_with_one_key_through_two_gateways_are_one_turn(
    redis_url: str, client: RedisClient, body: dict[str, Any]
) -> None:
    """Sent at the same moment, half of them as streams: one message, one answer, the same for all."""
    async with gateway(redis_url) as a, gateway(redis_url) as b, working(redis_url) as worker:
        bodies = [body | {"stream": n % 4 > 1} for n in range(20)]
        result = await asyncio.gather(
            *(post((a, b)[n % 2].address, one, headers=KEY) for n, one in enumerate(bodies))
        )  # fmt: skip
        assert [one.status for one in result] == [200] * 20
        assert len(worker.turns) == 1
        assert len({one.headers["x-request-id"] for one in result}) == 1
        whole = {one.body for one in result if one.headers["content-type"] == "application/json"}
        assert len(whole) == 1, "the same bytes for everybody"
        assert all(b"said: hello" in one.body for one in result)
        if "user" not in body:
            [answer] = await eventually(lambda: only_the_answer(client), within_s=60)
            assert answer.startswith(keys.request_answer(""))


async def only_the_answer(client: RedisClient) -> list[str]:
    left = await left_behind(client)
    assert len(left) == 1
    return left


async def test_openais_own_retries_with_a_key_begin_no_second_turn(redis_url: str) -> None:
    """The connection is lost while the turn runs: the client asks again by itself, and gets its answer."""
    with process(redis_url) as a, process(redis_url) as b:
        await asyncio.gather(a.ready(), b.ready())
        relays: list[asyncio.Task[None]] = []

        def balance(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            relays.append(asyncio.create_task(relay(reader, writer, a.address, b.address)))

        balancer = await asyncio.start_server(balance, "127.0.0.1", 0)
        host, port = balancer.sockets[0].getsockname()
        redis = RedisClient(redis_url)
        async with balancer:
            async with asker(f"{host}:{port}", retries=5) as client:
                asked = asyncio.create_task(client.chat.completions.create(**HELLO, extra_headers=KEY))
                async with turn_by_hand(redis) as turn:
                    a.popen.kill()
                    await turn.end("once")
                assert (await asked).choices[0].message.content == "once"
            await asyncio.gather(*relays)
        assert len(relays) > 1, "the client asked again"
        await eventually(lambda: only_the_answer(redis), within_s=60)
        await redis.close()


async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *addresses: str) -> None:
    """A load balancer: the first gateway that takes the connection."""
    ends = [writer]
    with contextlib.suppress(OSError):
        for address in addresses:
            host, _, port = address.rpartition(":")
            with contextlib.suppress(ConnectionRefusedError):
                there, back = await asyncio.open_connection(host, int(port))
                ends.append(back)
                pumps = [asyncio.create_task(pump(reader, back)), asyncio.create_task(pump(there, writer))]
                await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
                await cancel_all(pumps)
                break
    for end in ends:
        end.close()
        with contextlib.suppress(OSError):
            await end.wait_closed()


async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()


@pytest.mark.parametrize("when", ["before the answer", "after the answer"])
async def test_a_killed_gateway_loses_no_answer_of_a_key(redis_url: str, when: str) -> None:
    """SIGKILL while the client waits: it asks another gateway, before or after the worker has answered."""
    with process(redis_url) as a, process(redis_url) as b:
        await asyncio.gather(a.ready(), b.ready())
        redis = RedisClient(redis_url)
        async with asking(a.address, HELLO, headers=KEY):
            async with turn_by_hand(redis) as turn:
                a.popen.kill()
                if when == "after the answer":
                    await turn.end("here it is")
                async with asking(b.address, HELLO, headers=KEY) as again:
                    if when == "before the answer":
                        await eventually(lambda: is_waited_for(redis, turn.claim.session), within_s=60)
                        await turn.end("here it is")
                    result = await again
        assert (result.status, content(result)) == (200, "here it is")
        await eventually(lambda: only_the_answer(redis), within_s=60)
        await redis.close()


async def is_waited_for(redis: RedisClient, session: str) -> bool:
    [_, listeners] = await redis.command("PUBSUB", "NUMSUB", keys.live(session))
    return bool(listeners)


async def test_a_later_request_gets_the_stored_answer_in_the_form_it_asks_for(
    redis_url: str, client: RedisClient
) -> None:
    """Whole or as a stream, byte for byte the same each time, without a worker; usage only where it is asked for."""
    async with gateway(redis_url) as at:
        async with working(redis_url):
            first = await post(at.address, HELLO, headers=KEY)
        whole = await post(at.address, HELLO, headers=KEY)
        assert (whole.status, whole.body) == (200, first.body)
        streams = [await post(at.address, STREAM, headers=KEY) for _ in range(2)]
        assert streams[0].body == streams[1].body
        async with asker(at.address) as ask:
            stream = await ask.chat.completions.create(
                **HELLO, stream=True, stream_options={"include_usage": True}, extra_headers=KEY
            )
            chunks = [chunk async for chunk in stream]
        assert chunks[0].id == first.json["id"]
        assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks[:-1]) == content(first)
        assert chunks[-1].usage is not None
    [key] = await left_behind(client)
    assert KEEP_MS - 120_000 < await client.command("PTTL", key) <= KEEP_MS
    assert decode_answer(await client.command("HGET", key, "answer")).text == "you said: hello"


@pytest.mark.parametrize(
    ("other", "headers"),
    [
        ({"messages": [user("something else")]}, {}),
        ({"model": "deep"}, {}),
        ({"temperature": 1}, {}),
        ({"user": "a"}, {}),
        ({}, {"X-Shoal-Session": "a"}),
    ],
)
async def test_a_key_that_means_something_else_is_refused(
    redis_url: str, client: RedisClient, other: dict[str, Any], headers: dict[str, str]
) -> None:
    """422, in OpenAI's form, while the first runs and when it is over; no second turn."""
    async with gateway(redis_url, presets=("deep",)) as at:
        async with asking(at.address, HELLO, headers=KEY) as first:
            await waiting_message(client)
            early = await post(at.address, HELLO | other, headers=KEY | headers)
            async with working(redis_url) as worker:
                assert (await first).status == 200
                late = await post(at.address, HELLO | other, headers=KEY | headers)
            assert len(worker.turns) == 1
        for result in (early, late):
            assert result.status == 422
            assert (result.error["code"], result.error["param"]) == ("idempotency_key_reused", "Idempotency-Key")
        async with asker(at.address) as ask:
            with pytest.raises(official.UnprocessableEntityError):
                await ask.chat.completions.create(**{**HELLO, **other}, extra_headers=KEY | headers)


async def test_the_same_request_is_the_same_however_it_is_written(redis_url: str) -> None:
    """Order of fields, white space, the form of the answer, header or `user`: nothing that the answer depends on."""
    spaced = b'{ "messages" : [ {"content":"hello" , "role":"user"} ], "user":"a" , "model":"shoal", "stream":true }'
    async with gateway(redis_url) as at, working(redis_url) as worker:
        await post(at.address, HELLO | {"user": "a"}, headers=KEY)
        assert (await post(at.address, spaced, headers=KEY)).status == 200
        by_header = await post(at.address, HELLO, headers=KEY | {"X-Shoal-Session": "a"})
        assert by_header.status == 200
    assert len(worker.turns) == 1


async def test_a_key_is_one_persons_own(redis_url: str) -> None:
    """Two people who choose the same word do not meet."""
    async with gateway(redis_url) as at, working(redis_url) as worker:
        await post(at.address, HELLO, headers=KEY)
        await post(at.address, HELLO, headers=KEY, token="anns-secret")
    assert len(worker.turns) == 2


async def test_without_a_key_each_request_is_a_message(redis_url: str) -> None:
    """Nothing but a key says that two requests are the same."""
    async with gateway(redis_url) as at, working(redis_url) as worker:
        for _ in range(2):
            await post(at.address, HELLO)
    assert len(worker.turns) == 2


async def test_a_refused_request_is_not_its_keys_answer(redis_url: str, tmp_path: Path) -> None:
    """Invalid, too long, or with a file that is none: the key is free for a request that can be taken."""
    url = {"url": "data:image/png;base64,AAAA"}
    async with gateway(redis_url, media=MediaSettings(dir=tmp_path)) as at, working(redis_url) as worker:
        for bad in (
            {"n": 2},
            {"messages": [user("x" * 70_000)]},
            {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": url}]}]},
        ):
            assert (await post(at.address, HELLO | bad, headers=KEY)).status in (400, 413)
        assert (await post(at.address, HELLO, headers=KEY)).status == 200
    assert len(worker.turns) == 1


async def test_a_request_that_comes_too_early_keeps_its_key(redis_url: str, client: RedisClient) -> None:
    """429: the same request, a little later, is taken, and is one turn."""
    limits = InboxLimits(sender_per_minute=1)
    async with gateway(redis_url, inbox_limits=limits) as at, working(redis_url) as worker:
        assert (await post(at.address, HELLO)).status == 200
        assert (await post(at.address, HELLO, headers=KEY)).status == 429
        [brake] = await client.command("KEYS", keys.brake("*"))
        await client.command("DEL", brake)
        result = [await post(at.address, HELLO, headers=KEY) for _ in range(2)]
    assert [one.status for one in result] == [200, 200]
    assert len(worker.turns) == 2


@pytest.mark.parametrize("stream", [False, True])
async def test_a_failed_turn_fails_again_under_its_key(redis_url: str, client: RedisClient, stream: bool) -> None:
    """Also for who wants a stream: as nothing of it has been sent, it is a plain error."""
    async with gateway(redis_url) as at:
        async with answering(client, {"content": "Sorry (reference 1234)", "kind": "apology"}) as asked:
            first = await post(at.address, HELLO, headers=KEY)
        again = await post(at.address, HELLO | {"stream": stream}, headers=KEY)
    assert (again.status, again.body) == (first.status, first.body) == (500, first.body)
    assert (again.error["code"], len(asked)) == ("turn_failed", 1)


async def test_an_answer_that_is_too_long_to_be_kept_is_read_from_its_log(redis_url: str, client: RedisClient) -> None:
    """The stored answer has a limit; the log of the session stays instead, for a day."""
    long = "x" * (ANSWER_LIMIT_BYTES + 1)
    async with gateway(redis_url) as at:
        async with answering(client, {"content": long}) as asked:
            first = await post(at.address, HELLO, headers=KEY)
        again = await post(at.address, HELLO, headers=KEY)
        assert (content(first), again.body, len(asked)) == (long, first.body, 1)
        stream = await post(at.address, STREAM, headers=KEY)
        assert long.encode() in stream.body
    session = asked[0].session
    for key in (keys.session(session), keys.outbox(session)):
        assert 0 < await client.command("PTTL", key) <= KEEP_MS
    assert await client.command("EXISTS", keys.history(session)) == 0
    due = float(await client.command("ZSCORE", keys.EPHEMERAL, session))
    assert due > 0, "swept when nobody can ask any more"


async def test_a_client_of_a_key_that_goes_away_leaves_its_answer(redis_url: str, client: RedisClient) -> None:
    """The turn goes on; what is there is there for a day, and then it is swept."""
    async with gateway(redis_url) as at:
        async with stream_of(at.address, STREAM, headers=KEY):
            await waiting_message(client)
        await eventually(lambda: at.channel.facts()["web.requests"] == "0", within_s=60)
        async with working(redis_url) as worker:
            await eventually(lambda: worker.turns, within_s=60)
            async with asker(at.address) as ask:
                stream = await ask.chat.completions.create(**HELLO, stream=True, extra_headers=KEY)
                assert await text_of(stream) == "you said: hello"
        assert len(worker.turns) == 1
        left = await eventually(lambda: only_the_answer(client), within_s=60)
        await client.command("DEL", *left)
        assert await none_left(client)


@pytest.mark.parametrize("key", ["", " ", "a b", "x" * 256, "ü", "tab\there"])
async def test_a_key_that_is_none_is_refused(redis_url: str, key: str) -> None:
    """A word that every client, proxy and log writes alike."""
    async with gateway(redis_url) as at:
        result = await post(at.address, HELLO, headers={"Idempotency-Key": key})
    assert (result.status, result.error["code"]) == (400, "bad_idempotency_key")
