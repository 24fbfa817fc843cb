"""A pub/sub connection that was cut is counted."""

from __future__ import annotations

import asyncio

from shared.metrics import FANOUT_GAPS, totals
from shared.store.client import RedisClient
from shared.store.fanout import Fanout
from shared.tasks import cancel_all
from tests.helpers.wait import eventually


def gaps() -> float:
    return totals(FANOUT_GAPS)[()]


async def test_each_connection_after_the_first_is_a_gap(client: RedisClient) -> None:
    """Whoever subscribes for the first time has missed nothing."""
    before = gaps()
    told: list[float] = []

    async def on_gap() -> None:
        told.append(gaps() - before)

    fanout = Fanout(client, on_gap=on_gap)
    await fanout.listen_raw("shoal:live:a", lambda _: None)
    running = asyncio.create_task(fanout.run())
    try:
        await eventually(lambda: told == [0], within_s=10)
        await client.command("CLIENT", "KILL", "TYPE", "pubsub")
        await eventually(lambda: told == [0, 1], within_s=10)
        await client.command("CLIENT", "KILL", "TYPE", "pubsub")
        await eventually(lambda: told == [0, 1, 2], within_s=10)
    finally:
        await cancel_all([running])
