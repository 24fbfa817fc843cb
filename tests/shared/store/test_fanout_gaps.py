"""A pub/sub connection that was cut is counted; who listens hears what is said from then on."""

from __future__ import annotations

import asyncio
import functools

from shared.metrics import FANOUT_GAPS, totals
from shared.store.client.redis_client import RedisClient
from shared.store.delivery.fanout import SILENCE_S, Fanout
from shared.tasks import cancel_all
from tests.helpers.wait import eventually


def gaps() -> float:
    return totals(FANOUT_GAPS)[()]


async def test_each_connection_after_the_first_is_a_gap(client: RedisClient) -> None:
    """Whoever subscribes for the first time has missed nothing."""
    before = gaps()
    gap_count: list[float] = []

    async def on_gap() -> None:
        gap_count.append(gaps() - before)

    fanout = Fanout(client, on_gap=on_gap)
    await fanout.subscribe("shoal:{0ax}:live:a", lambda _: None)
    running = asyncio.create_task(fanout.run())
    try:
        await eventually(lambda: gap_count == [0], within_s=10)
        await client.command("CLIENT", "KILL", "TYPE", "pubsub")
        await eventually(lambda: gap_count == [0, 1], within_s=10)
        await client.command("CLIENT", "KILL", "TYPE", "pubsub")
        await eventually(lambda: gap_count == [0, 1, 2], within_s=10)
    finally:
        await cancel_all([running])


async def test_the_first_listener_gets_what_is_published_right_after(client: RedisClient) -> None:
    """The connection is made for them: until it is there, they wait."""

    async def on_gap() -> None:
        pass

    for number in range(20):
        events: list[bytes] = []
        fanout = Fanout(client, on_gap=on_gap)
        running = asyncio.create_task(fanout.run())
        try:
            await asyncio.sleep(0)  # it has begun, and waits for the first listener
            await fanout.subscribe(f"shoal:{{0ax}}:live:{number}", events.append)
            assert await client.command("PUBLISH", f"shoal:{{0ax}}:live:{number}", b"hello") == 1
            await eventually(functools.partial(events.__contains__, b"hello"), within_s=10)
        finally:
            await cancel_all([running])


async def test_nobody_waits_for_a_redis_that_is_away() -> None:
    """The subscription is made when it is back."""

    async def on_gap() -> None:
        pass

    nowhere = RedisClient("redis://127.0.0.1:1/0", timeout_s=0.2)
    fanout = Fanout(nowhere, on_gap=on_gap)
    await fanout.subscribe("shoal:{0ax}:live:a", lambda _: None)  # before it runs
    running = asyncio.create_task(fanout.run())
    try:
        await asyncio.sleep(0)
        async with asyncio.timeout(SILENCE_S / 2):
            await fanout.subscribe("shoal:{0ax}:live:b", lambda _: None)
    finally:
        await cancel_all([running])
        await nowhere.close()


async def test_a_subscription_that_nobody_confirms_any_more_ends(client: RedisClient) -> None:
    """A process that stops leaves nobody waiting."""

    async def on_gap() -> None:
        pass

    fanout = Fanout(client, on_gap=on_gap)
    running = asyncio.create_task(fanout.run())
    await fanout.subscribe("shoal:{0ax}:live:a", lambda _: None)
    late = asyncio.create_task(fanout.subscribe("shoal:{0ax}:live:b", lambda _: None))
    await asyncio.sleep(0)  # it has asked, and waits for the word
    await cancel_all([running])
    async with asyncio.timeout(1):
        await late
