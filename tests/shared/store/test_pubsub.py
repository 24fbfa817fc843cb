"""What comes over a pub/sub connection is handed on as it comes."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor

import pytest

from shared.errors import RedisAway
from shared.process.service import loop_factory
from shared.store.client.pubsub import PubSubEvent, pubsub
from shared.store.client.redis_client import RedisClient
from tests.helpers.wait import eventually


async def test_what_waited_is_handed_on_before_what_comes(client: RedisClient) -> None:
    """In the order of the server."""
    events: list[PubSubEvent] = []
    async with pubsub(client) as news:
        news.subscribe("a")
        await eventually(lambda: _listens(client))
        for text in (b"1", b"2"):
            await client.command("PUBLISH", "a", text)
        handing = asyncio.create_task(news.dispatch(events.append, 60))
        await eventually(lambda: len(events) == 3)
        await client.command("PUBLISH", "a", b"3")
        await eventually(lambda: len(events) == 4)
        handing.cancel()
    assert [(one.kind, one.data) for one in events[1:]] == [("message", text) for text in (b"1", b"2", b"3")]


async def test_silence_differs_from_an_answer(client: RedisClient) -> None:
    """So that whoever asked knows whether the connection is dead."""
    events: list[PubSubEvent] = []
    async with pubsub(client) as news:
        assert not await news.dispatch(events.append, 0.05)
        news.subscribe("a")
        news.ping()
        assert await news.dispatch(events.append, 0.2)
    assert [one.kind for one in events] == ["subscribe", "pong"]


async def test_an_answer_counts_within_a_millisecond(redis_url: str) -> None:
    """It is as fast as that, and the clock of the loop that a worker runs on has no less."""

    async def answered() -> list[tuple[bool, bool]]:
        client = RedisClient(redis_url)
        try:
            async with pubsub(client) as news:
                news.subscribe("a")
                found = []
                for _ in range(50):
                    news.ping()
                    events: list[PubSubEvent] = []
                    found.append((await news.dispatch(events.append, 0.01), bool(events)))
                return found
        finally:
            await client.close()

    def in_a_loop_of_its_own() -> list[tuple[bool, bool]]:
        with asyncio.Runner(loop_factory=loop_factory()) as runner:
            return runner.run(answered())

    with ThreadPoolExecutor(1) as threads:
        found = await asyncio.get_running_loop().run_in_executor(threads, in_a_loop_of_its_own)
    # On a busy machine a pong may come in the round after: each round tells what came in it.
    assert (True, True) in found
    assert {answered for answered, came in found if answered != came} == set()


async def test_what_a_listener_raises_reaches_whoever_reads(client: RedisClient) -> None:
    """A bug ends the reading, and no other part of the process."""

    def broken(events: PubSubEvent) -> None:
        raise ZeroDivisionError

    async with pubsub(client) as news:
        news.subscribe("a")
        with pytest.raises(ZeroDivisionError):
            await news.dispatch(broken, 60)


async def test_the_end_of_the_connection_is_reported(client: RedisClient) -> None:
    """At once, not after the silence."""
    async with pubsub(client) as news:
        handing = asyncio.create_task(news.dispatch(lambda events: None, 60))
        await client.command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
        with pytest.raises(RedisAway):
            await handing


async def _listens(client: RedisClient) -> bool:
    return bool(await client.command("PUBSUB", "CHANNELS", "a"))
