"""Waiting for work and leasing it in one go."""

from __future__ import annotations

import asyncio
import time

import pytest

from shared.store import keys
from shared.store.client.redis_client import RedisClient
from shared.store.turns.inbox import Inbox
from shared.store.turns.queue import LeaseQueue
from tests.helpers.build import say
from tests.helpers.wait import eventually

SESSION = "web:owner/a"


@pytest.fixture
async def queue(client: RedisClient) -> LeaseQueue:
    return LeaseQueue(client, "turns", owner="a" * 32, lease_s=15.0)


async def _waits(client: RedisClient) -> bool:
    return b"blocked_clients:1" in await client.command("INFO", "clients")


async def test_a_message_is_leased_by_the_server_itself_when_it_comes(client: RedisClient, queue: LeaseQueue) -> None:
    """Before the worker has heard of it: its lease is there with the answer to whoever said it."""
    assert await queue.acquire(10) == []
    waiting = asyncio.create_task(queue.acquire_next(10))
    await eventually(lambda: _waits(client))
    await say(Inbox(client))
    assert (await client.command("HGET", keys.leases("turns"), keys.turn(SESSION))).startswith(b"a" * 32)
    [claim] = await waiting
    assert claim.session == SESSION
    assert await client.command("EXISTS", keys.wake("turns")) == 0
    await queue.close()


async def test_without_work_it_ends_after_its_time(client: RedisClient) -> None:
    """It is a fifth of the lease, as a lease counts from its beginning, and never more than a second."""
    short = LeaseQueue(client, "turns", owner="a" * 32, lease_s=0.5)
    assert short.wait_s == pytest.approx(0.1)
    assert LeaseQueue(client, "turns", owner="a" * 32, lease_s=60).wait_s == 1.0
    assert await short.acquire_next(10) == []
    await short.close()


async def test_it_can_be_ended_and_takes_what_is_due_all_the_same(client: RedisClient, queue: LeaseQueue) -> None:
    """Without a token, as after a worker that took one and died."""
    await say(Inbox(client))
    await client.command("DEL", keys.wake("turns"))
    waiting = asyncio.create_task(queue.acquire_next(10))
    await eventually(lambda: _waits(client))
    await queue.end_wait()
    assert len(await waiting) == 1
    assert await client.command("EXISTS", keys.wake("a" * 32)) == 0
    await queue.close()


async def test_a_server_that_does_not_know_the_script_is_given_it(client: RedisClient, queue: LeaseQueue) -> None:
    """After a restart; the token was used, and the work is leased."""
    await say(Inbox(client))
    await client.command("SCRIPT", "FLUSH")
    assert len(await queue.acquire_next(10)) == 1
    await queue.close()


async def test_a_broken_wake_list_loses_nothing_that_was_leased(client: RedisClient, queue: LeaseQueue) -> None:
    """The wait fails at once and the lease is given: it must not be thrown away with the error."""
    await say(Inbox(client))
    await client.pipeline([("DEL", keys.wake("turns")), ("SET", keys.wake("turns"), "no list")])
    assert len(await queue.acquire_next(10)) == 1
    began = time.monotonic()
    assert await queue.acquire_next(10) == []
    assert time.monotonic() - began >= queue.wait_s, "work is found by looking, and not all the time"
    await queue.close()
