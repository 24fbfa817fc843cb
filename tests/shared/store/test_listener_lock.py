"""The lock of a platform that allows one listener, on a real Valkey."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest

from shared.errors import RedisAway
from shared.store import keys
from shared.store.client.redis_client import RedisClient, Value
from shared.store.client.scripts import Script
from shared.store.delivery.fanout import Fanout
from shared.store.delivery.listener_lease import LOOK_S, ListenerLease, ListenerLock
from shared.tasks import cancel_all
from tests.helpers.clock import HandClock

NAME = "discord:0"
LEASE_S = 30.0


class Sometimes(RedisClient):
    """A client that can be away."""

    away = False

    async def evaluate(self, script: Script, call: tuple[Value, ...]) -> Any:
        if self.away:
            raise RedisAway("away")
        return await super().evaluate(script, call)


@pytest.fixture
async def sometimes(redis_url: str) -> AsyncIterator[Sometimes]:
    made = Sometimes(redis_url)
    yield made
    await made.close()


def replica(client: RedisClient) -> ListenerLock:
    return ListenerLock(client, NAME, lease_s=LEASE_S)


async def got(lock: ListenerLock) -> ListenerLease:
    held = await lock.acquire()
    assert isinstance(held, ListenerLease)
    return held


async def lapse(client: RedisClient, *, ms: int = 3_600_000) -> None:
    """Nobody renewed for so long."""
    await client.command("HINCRBY", keys.lock(NAME), "until", -ms)


async def test_one_replica_at_a_time_has_it(client: RedisClient) -> None:
    """The others are told when to ask again; other names are other locks."""
    first, second = replica(client), replica(client)
    held = await got(first)
    assert await second.acquire() == LOOK_S
    await client.command("HINCRBY", keys.lock(NAME), "until", -29_500)
    wait_s = await second.acquire()
    assert isinstance(wait_s, float)
    assert 0 < wait_s <= 0.5
    assert await first.renew(held)
    assert await second.acquire() == LOOK_S
    assert isinstance(await ListenerLock(client, "discord:1", lease_s=LEASE_S).acquire(), ListenerLease)


async def test_a_lapsed_lock_changes_owner_and_the_fence_is_above_all_before_it(client: RedisClient) -> None:
    """Whoever held it can keep, note and give up nothing; renewed in time it is kept."""
    first, second = replica(client), replica(client)
    old = await got(first)
    assert not old.owner_lost
    await lapse(client)
    assert await first.renew(old), "nobody has taken it yet"
    await lapse(client)
    new = await got(second)
    assert new.owner_lost
    assert int(new.token) > int(old.token)
    assert not await first.renew(old)
    assert not await first.save_cursor(old, b"old")
    await first.release(old)
    assert await second.renew(new)
    assert await first.acquire() == LOOK_S


async def test_a_token_grows_also_when_the_clock_fell_back(client: RedisClient) -> None:
    """The next one is above the newest ever given."""
    lock = replica(client)
    await lock.release(await got(lock))
    await client.command("HSET", keys.lock(NAME), "token", 9_000_000_000_000_000)
    assert (await got(lock)).token == "9000000000000001"


async def test_an_answer_that_got_lost_costs_nothing(client: RedisClient) -> None:
    """The same process asks again and has it; its older token is void."""
    lock = replica(client)
    lost = await got(lock)
    held = await got(lock)
    assert int(held.token) > int(lost.token)
    assert not await lock.renew(lost)
    assert await lock.renew(held)


async def test_how_far_was_read_is_known_to_whoever_has_it_next(client: RedisClient) -> None:
    """So a hand-over misses nothing and reads nothing twice, where the platform has a cursor."""
    first, second = replica(client), replica(client)
    held = await got(first)
    assert held.cursor == b""
    assert await first.save_cursor(held, b"s72594\x00")
    await first.release(held)
    held = await got(second)
    assert (held.cursor, held.owner_lost) == (b"s72594\x00", False)
    assert 0 < await client.command("PTTL", keys.lock(NAME)) <= 30 * 86_400_000


async def test_what_is_noted_keeps_the_lock(client: RedisClient) -> None:
    """A listener with much to read needs no renewals."""
    first, second = replica(client), replica(client)
    held = await got(first)
    await lapse(client, ms=29_900)
    assert await first.save_cursor(held, b"x")
    assert await second.acquire() == LOOK_S


async def test_given_up_it_is_anothers_within_a_moment(client: RedisClient) -> None:
    """Whoever waits is told by pub/sub: nothing like a lease, or a look a second, lies between."""
    first, second = replica(client), replica(client)
    held = await got(first)
    connected = asyncio.Event()

    async def ready() -> None:
        connected.set()

    fanout = Fanout(client, on_gap=ready)
    await fanout.subscribe(second.freed, second.wake)
    listening = asyncio.create_task(fanout.run())
    await connected.wait()
    assert await second.acquire() == LOOK_S
    waiting = asyncio.create_task(second.wait(3600))
    started = time.monotonic()
    await first.release(held)
    async with asyncio.timeout(60):
        await waiting
    assert isinstance(await second.acquire(), ListenerLease)
    assert time.monotonic() - started < 60
    await cancel_all([listening])


async def test_a_wake_that_comes_between_look_and_wait_is_not_lost(client: RedisClient) -> None:
    """And one that came before the look says nothing new."""
    lock, other = replica(client), replica(client)
    await got(other)
    lock.wake()
    assert await lock.acquire() == LOOK_S
    await lock.wait(0.01)
    lock.wake()
    async with asyncio.timeout(60):
        await lock.wait(3600)


async def test_after_an_outage_it_is_left_to_whoever_held_it_for_half_a_lease(
    client: RedisClient, sometimes: Sometimes
) -> None:
    """The holder reconnects at the same moment. What was given up is free at once."""
    clock = HandClock()
    first, second = replica(client), ListenerLock(sometimes, NAME, lease_s=LEASE_S, clock=clock)
    held = await got(first)
    sometimes.away = True
    with pytest.raises(RedisAway):
        await second.acquire()
    sometimes.away = False
    await lapse(client, ms=44_000)
    assert isinstance(await second.acquire(), float)
    assert await first.renew(held)
    await lapse(client, ms=31_000)
    assert isinstance(await second.acquire(), float)
    clock.at += LEASE_S / 2
    assert (await got(second)).owner_lost
