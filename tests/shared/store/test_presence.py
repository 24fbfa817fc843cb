"""Who is there: records that outlive their process by seconds only."""

from __future__ import annotations

import msgspec

from shared.store import keys
from shared.store.client.redis_client import RedisClient
from shared.store.fleet.presence import Presence, announce, list_processes, remove_presence

ONE = Presence(kind="worker", name="a", host="h", pid=1, started_at=0, version="0")


async def test_a_process_is_listed_until_it_leaves(client: RedisClient) -> None:
    """announce and withdraw; the latest record counts."""
    await announce(client, ONE)
    await announce(client, msgspec.structs.replace(ONE, name="b", running=3))
    await announce(client, msgspec.structs.replace(ONE, running=2))
    assert [(p.name, p.running) for p in await list_processes(client)] == [("a", 2), ("b", 3)]
    await remove_presence(client, ONE)
    assert [p.name for p in await list_processes(client)] == ["b"]


async def test_a_process_that_died_is_forgotten_with_its_place_in_the_index(client: RedisClient) -> None:
    """Records expire by themselves; the index is swept whenever somebody announces."""
    await announce(client, ONE)
    await client.command("ZADD", keys.PRESENCE, 1, keys.presence("worker", "dead"))
    assert 0 < await client.command("TTL", keys.presence("worker", "a")) <= 15
    await announce(client, ONE)
    assert await client.command("ZRANGE", keys.PRESENCE, 0, -1) == [keys.presence("worker", "a").encode()]


async def test_nobody_is_there_at_first(client: RedisClient) -> None:
    """An empty store is no error."""
    assert await list_processes(client) == []
