"""Work in a process of its own: what its worker dies of is not its doing."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from shared.errors import LeaseLost
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


async def crashes(client: RedisClient, dies: Dies, *, isolated: bool, times: int) -> int:
    """What is counted after a worker has died with the turn so many times."""
    for _ in range(times):
        claim = await claim_one(client)
        if isolated:
            await queue(client).mark_isolated(claim)
        await dies(client, claim)
    last = await claim_one(client)
    assert last.turn is not None
    await _given_back_uncounted(client, last)
    return last.turn.crashes


async def _given_back_uncounted(client: RedisClient, claim: Claim) -> None:
    await LeaseQueue(client, "turns", owner=claim.owner, lease_s=30).release(claim)


@pytest.mark.parametrize("dies", [_lapsed, _given_back])
async def test_three_deaths_of_a_worker_beside_count_as_one(client: RedisClient, dies: Dies) -> None:
    """So that who stands apart while others kill their worker is not convicted; but neither does it go on for ever."""
    await say(Inbox(client))
    assert await crashes(client, dies, isolated=False, times=2) == 2
    assert await crashes(client, dies, isolated=True, times=2) == 2
    assert await crashes(client, dies, isolated=True, times=4) == 4


async def test_only_the_lease_that_was_marked_is_isolated(client: RedisClient) -> None:
    """The next worker may run it beside others again."""
    await say(Inbox(client))
    await queue(client).mark_isolated(first := await claim_one(client))
    await _lapsed(client, first)
    second = await claim_one(client)
    await _lapsed(client, second)
    third = await claim_one(client)
    assert third.turn is not None
    assert third.turn.crashes == 1
    with pytest.raises(LeaseLost):
        await queue(client).mark_isolated(first)
    assert await client.command("HGET", keys.session(SESSION), "apart") == first.lease_id.encode()


async def test_crashes_of_an_isolated_subagent_count_less_too(client: RedisClient) -> None:
    """Its record is its own."""
    parent = await Parent.begin(client)
    await parent.spawn("aaaaaaaa")
    for _ in range(3):
        [claim] = await take(client)
        assert claim.subagent is not None
        assert claim.subagent.crashes == 0
        await queue(client, "jobs").mark_isolated(claim)
        await client.command("ZADD", keys.queue("jobs"), 1, claim.member)
    [claim] = await take(client)
    assert claim.subagent is not None
    assert claim.subagent.crashes == 1


@pytest.mark.parametrize("how", ["step", "end"])
async def test_progress_and_an_end_forget_it(client: RedisClient, how: str) -> None:
    """As with crashes of any kind."""
    await say(Inbox(client))
    for _ in range(3):
        await queue(client).mark_isolated(claim := await claim_one(client))
        await _lapsed(client, claim)
    claim = await claim_one(client)
    if how == "step":
        await Turns(client).append_step(claim, 1, AssistantEntry(content="x", turn=1))
        await _given_back_uncounted(client, claim)
        again = await claim_one(client)
        assert again.turn is not None
        assert again.turn.crashes == 0
    else:
        await Turns(client).commit(claim, history=[], lines=[reply("x", 1)], event=TurnEvent(1, "done"))
        assert await client.command("HMGET", keys.session(SESSION), "apart", "spared") == [None, None]
