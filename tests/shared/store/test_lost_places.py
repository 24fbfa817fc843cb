"""Chats that lost their place in the queue get one again."""

from __future__ import annotations

from shared.store import keys
from shared.store.client.redis_client import RedisClient
from shared.store.turns.inbox import TURNS, Inbox
from shared.store.turns.lost_places import requeue_lost
from shared.store.turns.queue import LeaseQueue
from tests.helpers.build import say


async def queues(client: RedisClient) -> dict[str, list[bytes]]:
    names = (keys.queue(TURNS), keys.queue(keys.BACKGROUND))
    return {name: sorted(await client.command("ZRANGE", name, 0, -1)) for name in names}


async def test_a_chat_that_waits_or_runs_is_in_the_queue_again(client: RedisClient) -> None:
    """One that runs keeps its lease; one that nobody has asked anything stays out; a second look finds nothing."""
    queue = LeaseQueue(client, TURNS, owner="a" * 32, lease_s=30)
    await say(Inbox(client), chat="owner/runs")
    [claim] = await queue.acquire(1)
    for n in range(3):
        await say(Inbox(client), chat=f"owner/{n}")
    before = await queues(client)
    await client.command("DEL", *before)
    assert await requeue_lost(client) == 4
    assert await queues(client) == before
    runs, waits = [await client.command("ZSCORE", keys.queue(TURNS), keys.turn(f"web:owner/{n}")) for n in ("runs", 0)]
    assert float(runs) > float(waits) + 30_000, "nobody looks at one that runs before its owner renews"
    assert await requeue_lost(client) == 0
    assert await queue.renew([claim]) == [0]
    assert {found.session for found in await queue.acquire(10)} == {f"web:owner/{n}" for n in range(3)}
    await queue.close()


async def test_a_broken_chat_does_not_stop_the_others(client: RedisClient) -> None:
    """It stays out until it is mended."""
    for chat in ("owner/broken", "owner/well"):
        await say(Inbox(client), chat=chat)
    await client.pipeline([("DEL", keys.queue(TURNS)), ("DEL", keys.inbox("web:owner/broken"))])
    await client.command("SET", keys.inbox("web:owner/broken"), "x")
    assert await requeue_lost(client) == 1
