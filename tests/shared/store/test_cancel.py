from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable

import pytest

from shared.store.client.redis_client import RedisClient

COMMANDS: dict[str, Callable[[RedisClient], Awaitable[object]]] = {
    "command": lambda client: client.command("PING"),
    "pipeline": lambda client: client.pipeline([("PING",), ("PING",)]),
}


@pytest.mark.parametrize("how", COMMANDS)
async def test_a_task_that_talks_to_redis_ends_when_it_is_cancelled(redis_url: str, how: str) -> None:
    """At whatever moment: a lost cancellation is a drain that never ends, or a stopped turn that goes on."""
    client = RedisClient(redis_url)
    ask = COMMANDS[how]
    rng = random.Random(7)

    async def talk() -> None:
        while True:
            await ask(client)

    for _ in range(300):
        task = asyncio.create_task(talk())
        for _ in range(rng.randrange(2, 40)):
            await asyncio.sleep(0)
        task.cancel()
        done, _ = await asyncio.wait([task], timeout=2)
        assert done, "the cancellation was lost"
    await client.close()


async def test_a_blocking_wait_ends_when_it_is_cancelled(redis_url: str) -> None:
    """The same for a worker that waits for work."""
    client = RedisClient(redis_url)
    rng = random.Random(7)

    async def wait() -> None:
        blocking = client.blocking(0.05)
        try:
            while True:
                await blocking.commands([("BLPOP", "nothing", 0.01)])
        finally:
            await blocking.close()

    for _ in range(100):
        task = asyncio.create_task(wait())
        for _ in range(rng.randrange(2, 60)):
            await asyncio.sleep(0)
        task.cancel()
        done, _ = await asyncio.wait([task], timeout=2)
        assert done, "the cancellation was lost"
    await client.close()


async def test_a_connection_that_is_closed_as_it_opens_is_not_left_open(redis_url: str) -> None:
    """In the moment between its opening and the news of it."""
    client = RedisClient(redis_url)
    connection = client._connection
    connection._opening = opening = asyncio.create_task(connection.open())
    await asyncio.wait([opening])
    opening.add_done_callback(connection._is_open)  # it is called after the next line has begun
    await client.close()
    assert opening.result().lost
