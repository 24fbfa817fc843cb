"""A real cluster moves our slot while a gateway and two workers are at work: to a replica, or to another primary."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from shared.errors import RedisAway
from shared.store import keys
from shared.store.client.redis_client import RedisClient
from tests.crash.moving import conversation, ours_at
from tests.helpers.openai_server import ScriptedOpenAI
from tests.helpers.redis_cluster import NODE_TIMEOUT_S, PASSWORD, RedisCluster, redis_cluster
from tests.helpers.wait import eventually

STAND_STILL_S = NODE_TIMEOUT_S + 2
MARGIN_S = 20.0
"""For a machine that stalls; what is promised is above, and `proof.chaos` measures it."""


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[RedisCluster]:
    (tmp_path / "nodes").mkdir()
    with redis_cluster(tmp_path / "nodes") as made:
        await eventually(lambda: asyncio.to_thread(made.attach), within_s=60, every_s=0.1)
        yield made


@pytest.mark.timeout(240)
@pytest.mark.parametrize("way", ["by hand", "killed", "stopped and resumed"])
async def test_the_fleet_goes_on_at_the_replica_that_the_cluster_promotes(
    way: str, cluster: RedisCluster, model: ScriptedOpenAI, tmp_path: Path
) -> None:
    """Nothing is lost or answered twice; a former primary that is resumed has none of our connections left."""
    async with conversation(cluster.url_without_password, PASSWORD, model, tmp_path) as people:
        former = await asyncio.to_thread(cluster.primary)
        if way == "by hand":
            await asyncio.to_thread(cluster.fail_over)
        else:
            await asyncio.to_thread(cluster.kill if way == "killed" else cluster.stop, former)
        await eventually(lambda: asyncio.to_thread(lambda: cluster.primary() != former), within_s=60, every_s=0.05)
        await people.has_answers(5)
        if way == "stopped and resumed":
            cluster.resume(former)
            await eventually(
                lambda: asyncio.to_thread(lambda: ours_at(former, PASSWORD) == (b"slave", [])), within_s=30
            )
    assert max(people.gaps) < STAND_STILL_S + MARGIN_S


@pytest.mark.timeout(240)
@pytest.mark.parametrize("way", ["at once", "key by key"])
async def test_the_slot_moves_to_another_primary_under_load(
    way: str, cluster: RedisCluster, model: ScriptedOpenAI, tmp_path: Path
) -> None:
    """Valkey 9 moves a slot as a whole. Older servers move it key by key, and no script may run in between: it would
    find some of its keys at neither place."""
    async with conversation(cluster.url_without_password, PASSWORD, model, tmp_path) as people:
        [target, *_] = await asyncio.to_thread(cluster.others)
        move = cluster.move_at_once if way == "at once" else cluster.move_key_by_key
        await asyncio.to_thread(move, target)
        await eventually(lambda: asyncio.to_thread(lambda: cluster.primary() == target), within_s=60, every_s=0.05)
        await people.has_answers(5)
    assert max(people.gaps) < STAND_STILL_S + MARGIN_S


async def test_a_lost_replica_holds_writes_up_only_while_no_majority_sees_the_primary(cluster: RedisCluster) -> None:
    """Two servers must have each write. With the replica gone, other primaries are asked whether ours is still ours."""
    client = RedisClient(cluster.url, copies=2)
    try:
        await client.confirmed("SET", f"{keys.PREFIX}x", "1")
        await asyncio.to_thread(cluster.kill, await asyncio.to_thread(cluster.replica))
        with pytest.raises(RedisAway, match="1 of 2 servers have the last writes"):
            await client.confirmed("SET", f"{keys.PREFIX}x", "2")
        await eventually(lambda: counts(client), within_s=60, every_s=0.2)
        for port in await asyncio.to_thread(cluster.others):
            cluster.stop(port)
        await eventually(lambda: refused(client), within_s=60, every_s=0.2)
        for port in cluster.stopped:
            cluster.resume(port)
        await eventually(lambda: counts(client), within_s=60, every_s=0.2)
    finally:
        await client.close()


async def counts(client: RedisClient) -> bool:
    """Whether a write is confirmed."""
    with contextlib.suppress(RedisAway):
        await client.confirmed("SET", f"{keys.PREFIX}x", "3")
        return True
    return False


async def refused(client: RedisClient) -> bool:
    """The opposite."""
    return not await counts(client)
