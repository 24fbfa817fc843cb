"""A lease loop that waits for work: how its wait ends, and what becomes of a lease that never arrived."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from shared.ids import nonce
from shared.messages.live import TurnEvent
from shared.store.client.redis_client import RedisClient
from shared.store.turns.inbox import Inbox
from shared.store.turns.queue import Claim, LeaseQueue
from shared.store.turns.turn_writes import Turns
from tests.helpers.build import reply, say
from tests.helpers.wait import eventually
from worker.lease.lease import Lease
from worker.lease.lease_loop import LeaseLoop


class Counting(LeaseQueue):
    """How often it was looked for leases that never arrived."""

    reclaims = 0

    async def release_unknown(self, running: Iterable[Claim]) -> int:
        found = await super().release_unknown(running)
        self.reclaims += 1
        return found


async def _waits(client: RedisClient) -> bool:
    return b"blocked_clients:1" in await client.command("INFO", "clients")


async def test_a_drain_ends_the_wait_and_takes_nothing_along(client: RedisClient) -> None:
    """A wait that were cancelled could have leased something whose name nobody hears."""
    loop = LeaseLoop(LeaseQueue(client, "turns", owner=nonce(), lease_s=15.0), slots=1, run=_never)
    running = asyncio.create_task(loop.run())
    await eventually(lambda: _waits(client))
    loop.drain()
    await running
    await say(Inbox(client))
    assert await client.command("HLEN", "shoal:{0ax}:leases:turns") == 0


async def test_after_an_outage_it_is_looked_twice_for_leases_that_never_arrived(
    client: RedisClient, redis_url: str
) -> None:
    """The server may go on with a wait whose connection is lost, and lease for it behind the first look."""
    done = asyncio.Event()

    async def commit(lease: Lease) -> None:
        assert lease.claim.turn is not None
        n = lease.claim.turn.n
        event = TurnEvent(n, "done")
        await Turns(client).commit(lease.claim, history=[], lines=[reply("ok", n)], event=event)
        done.set()

    owner = nonce()
    queue = Counting(client, "turns", owner=owner, lease_s=15.0)
    loop = LeaseLoop(queue, slots=1, run=commit)
    running = asyncio.create_task(loop.run())
    await eventually(lambda: _waits(client))
    other = RedisClient(redis_url)
    await other.command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
    await eventually(lambda: queue.reclaims == 1)
    await say(Inbox(other))
    assert len(await LeaseQueue(other, "turns", owner=owner, lease_s=15.0).acquire(1)) <= 1, "or it was quicker"
    async with asyncio.timeout(60):
        await done.wait()
    await eventually(lambda: queue.reclaims == 2)
    loop.drain()
    await running
    await other.close()


async def _never(lease: Lease) -> None:
    raise AssertionError(f"{lease.claim.member!r} is not for a loop that drains")
