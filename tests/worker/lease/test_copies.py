"""`redis.copies`: what must not happen twice waits until further servers have it."""

from __future__ import annotations

import pytest

from shared.clock import SYSTEM_CLOCK
from shared.errors import LeaseLost, RedisAway, TurnReleased
from shared.messages.transcript import IntentEntry
from shared.store import keys
from shared.store.client.redis_client import RedisClient
from shared.store.turns.inbox import Inbox
from shared.store.turns.queue import Claim, LeaseQueue
from shared.store.turns.turn_writes import Turns
from tests.helpers.build import say
from worker.lease.lease import COPIES_DELAY_S, Lease


async def claimed(client: RedisClient) -> tuple[LeaseQueue, Claim]:
    """The queue has a short lease: it is also how long a missing replica is waited for."""
    await say(Inbox(client))
    queue = LeaseQueue(client, "turns", owner="a" * 32, lease_s=0.3)
    [claim] = await queue.acquire(1)
    return queue, claim


def lease_of(queue: LeaseQueue, claim: Claim) -> Lease:
    return Lease(claim, queue, claimed_at=SYSTEM_CLOCK.monotonic(), clock=SYSTEM_CLOCK, proxy=None)


async def test_without_a_replica_nothing_that_wants_one_is_confirmed(client: RedisClient, redis_url: str) -> None:
    """The turn is given back, to be tried again later. That is nobody's crash."""
    queue, claim = await claimed(client)
    careful = RedisClient(redis_url, copies=2)
    queue._client = careful
    with pytest.raises(RedisAway, match="1 of 2 servers"):
        await queue.confirm(claim)
    for step in (lease_of(queue, claim).confirm(), lease_of(queue, claim).secure(1)):
        with pytest.raises(TurnReleased) as caught:
            await step
        assert caught.value.delay_s == COPIES_DELAY_S
    await careful.close()
    await queue.close()


async def test_one_copy_is_there_at_once(client: RedisClient) -> None:
    """As without the setting; then a further wait costs no command."""
    queue, claim = await claimed(client)
    lease = lease_of(queue, claim)
    assert await queue.confirm(claim) == 0
    await lease.confirm()
    await client.command("CONFIG", "RESETSTAT")
    await lease.secure(1)
    assert b"cmdstat_evalsha" not in await client.command("INFO", "commandstats")
    await queue.close()


async def test_a_lease_that_is_lost_is_not_confirmed(client: RedisClient) -> None:
    """Whatever the servers have: also by a script that this server does not know yet."""
    queue, claim = await claimed(client)
    await client.command("HDEL", keys.leases("turns"), claim.member)
    await client.command("SCRIPT", "FLUSH")
    assert await queue.confirm(claim) is None
    with pytest.raises(LeaseLost):
        await lease_of(queue, claim).confirm()
    await queue.close()


class Copied(LeaseQueue):
    """Two servers have what this one has."""

    @property
    def copies(self) -> int:
        return 2


async def test_a_step_that_a_lost_primary_had_accepted_does_not_count(client: RedisClient) -> None:
    """Its successor has the lease and a replica, and lacks the intent: the tool must not run, or it would run twice."""
    await say(Inbox(client))
    queue = Copied(client, "turns", owner="a" * 32, lease_s=15)
    [claim] = await queue.acquire(1)
    lease = lease_of(queue, claim)
    await Turns(client).append_step(claim, 1, IntentEntry(call_id="c1", turn=1))
    await lease.secure(1)
    with pytest.raises(TurnReleased, match="lost tail"):
        await lease.secure(2)
    await queue.close()
