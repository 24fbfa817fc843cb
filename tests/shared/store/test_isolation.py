"""Work in a process of its own: what its worker dies of is not its doing."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from shared.ids import nonce
from shared.messages.live import TurnEvent
from shared.messages.transcript import AssistantEntry
from shared.store import keys
from shared.store.client.redis_client import RedisClient
from shared.store.turns.inbox import Inbox
from shared.store.turns.queue import Claim, LeaseQueue
from shared.store.turns.turn_writes import Turns
from tests.helpers.build import reply, say
from tests.helpers.children import Parent, take

SESSION = "web:owner/a"

Dies = Callable[[RedisClient, Claim], Awaitable[None]]


def queue(client: RedisClient, name: str = "turns") -> LeaseQueue:
    return LeaseQueue(client, name, owner=nonce(), lease_s=30)


async def _lapsed(client: RedisClient, claim: Claim) -> None:
    await client.command("ZADD", keys.queue("turns"), 1, claim.member)


async def _given_back(client: RedisClient, claim: Claim) -> None:
    await LeaseQueue(client, "turns", owner=claim.owner, lease_s=30).release(claim, count="crashes")


async def claim_one(client: RedisClient) -> Claim:
    [claim] = await queue(client).acquire(1)
    assert claim.turn is not None
    return claim


async def crashes(client: RedisClient, dies: Dies, *, times: int) -> int:
    """What is counted after a worker has died with the turn so many times."""
    for _ in range(times):
        await dies(client, await claim_one(client))
    last = await claim_one(client)
    assert last.turn is not None
    await _given_back_uncounted(client, last)
    return last.turn.crashes


async def _given_back_uncounted(client: RedisClient, claim: Claim) -> None:
    await LeaseQueue(client, "turns", owner=claim.owner, lease_s=30).release(claim)


@pytest.mark.parametrize("dies", [_lapsed, _given_back])
async def test_from_the_second_crash_on_three_deaths_of_a_worker_count_as_one(client: RedisClient, dies: Dies) -> None:
    """The turn runs in a child by then. So kills of workers convict nobody; but neither does it go on for ever."""
    await say(Inbox(client))
    assert await crashes(client, dies, times=1) == 1
    assert await crashes(client, dies, times=1) == 2
    assert await crashes(client, dies, times=2) == 2
    assert await crashes(client, dies, times=4) == 4


async def test_the_death_of_its_own_child_counts_in_full(client: RedisClient) -> None:
    """Each divides the company in which it runs next."""
    await say(Inbox(client))
    for count in range(1, 5):
        claim = await claim_one(client)
        await LeaseQueue(client, "turns", owner=claim.owner, lease_s=30).release(claim, count="isolated")
        assert await crashes(client, _lapsed, times=0) == count


async def test_crashes_of_an_isolated_subagent_count_less_too(client: RedisClient) -> None:
    """Its record is its own."""
    parent = await Parent.begin(client)
    await parent.spawn("aaaaaaaa")
    for seen in (0, 1, 2, 2, 2):
        [claim] = await take(client)
        assert claim.subagent is not None
        assert claim.subagent.crashes == seen
        await client.command("ZADD", keys.queue("jobs"), 1, claim.member)
    [claim] = await take(client)
    assert claim.subagent is not None
    assert claim.subagent.crashes == 3


@pytest.mark.parametrize("how", ["step", "end"])
async def test_progress_and_an_end_forget_it(client: RedisClient, how: str) -> None:
    """As with crashes of any kind."""
    await say(Inbox(client))
    for _ in range(3):
        await _lapsed(client, await claim_one(client))
    claim = await claim_one(client)
    if how == "step":
        await Turns(client).append_step(claim, 1, AssistantEntry(content="x", turn=1))
        await _given_back_uncounted(client, claim)
        again = await claim_one(client)
        assert again.turn is not None
        assert again.turn.crashes == 0
    else:
        await Turns(client).commit(claim, history=[], lines=[reply("x", 1)], event=TurnEvent(1, "done"))
        assert await client.command("HMGET", keys.session(SESSION), "crashes", "spared") == [None, None]
