"""What stands behind a turn is told when it begins. Where that does not hold any more, its end looks again."""

from __future__ import annotations

import pytest

from shared.messages.live import TurnEvent
from shared.store import keys
from shared.store.client.redis_client import RedisClient
from shared.store.sessions.session import Sessions
from shared.store.turns.inbox import Inbox, InboxLimits
from shared.store.turns.known_messages import Withdrawals
from shared.store.turns.queue import Claim, LeaseQueue
from shared.store.turns.turn_writes import Turns
from tests.helpers.build import reply
from tests.helpers.sharing import person, tick, where

SESSION = "web:owner/a"
MEMBER = keys.turn(SESSION)


async def take(client: RedisClient) -> Claim:
    [claim] = await LeaseQueue(client, "turns", owner="w", lease_s=60).acquire(1)
    return claim


async def end(client: RedisClient, claim: Claim) -> None:
    assert claim.turn is not None
    n = claim.turn.n
    await Turns(client).commit(claim, history=[], lines=[reply("ok", n)], event=TurnEvent(n, "done"))


async def withdraw_next(client: RedisClient) -> None:
    """The message behind the one that is answered."""
    next_id = (await Sessions(client).state(SESSION)).waiting[1]
    assert await Withdrawals(client).withdraw("web", "owner/a", next_id) == "withdrawn"


async def test_the_same_persons_next_message_simply_follows(client: RedisClient) -> None:
    """Of another one, or a tick, nothing is told."""
    inbox = Inbox(client)
    await person(inbox, "owner")
    await person(inbox, "owner")
    await tick(inbox)
    for followed in (True, False, False):
        claim = await take(client)
        assert claim.turn is not None
        assert bool(claim.turn.next_due) is followed
        await end(client, claim)
    assert await where(client) == []


async def test_a_tick_behind_a_tick_waits_in_the_background(client: RedisClient) -> None:
    """That it can simply follow would bring it among the turns of people."""
    inbox = Inbox(client)
    await tick(inbox)
    await tick(inbox)
    await end(client, await take(client))
    assert await where(client) == [keys.BACKGROUND]


async def test_what_joined_the_turn_does_not_follow_it(client: RedisClient) -> None:
    """Who stands behind that was told nobody."""
    inbox = Inbox(client, InboxLimits(busy="steer"))
    await person(inbox, "owner")
    await person(inbox, "owner")
    await tick(inbox)
    claim = await take(client)
    assert await Turns(client).join_waiting(claim, 1, at_start=False) is not None
    await end(client, claim)
    assert await where(client) == [keys.BACKGROUND]


@pytest.mark.parametrize("behind", ["nothing", "a tick"])
async def test_what_was_withdrawn_meanwhile_does_not_follow(client: RedisClient, behind: str) -> None:
    """The chat waits where the one behind that wants it, or nowhere."""
    inbox = Inbox(client)
    await person(inbox, "owner")
    await person(inbox, "owner")
    if behind == "a tick":
        await tick(inbox)
    claim = await take(client)
    assert claim.turn is not None
    assert claim.turn.next_due
    await withdraw_next(client)
    await end(client, claim)
    assert await where(client) == ([keys.BACKGROUND] if behind == "a tick" else [])
    assert not await client.command("HEXISTS", keys.session(SESSION), "gap")


async def test_what_was_withdrawn_while_nobody_works_is_simply_gone(client: RedisClient) -> None:
    """Who takes the chat then is told what there is."""
    inbox = Inbox(client)
    for _ in range(3):
        await person(inbox, "owner")
    await withdraw_next(client)
    assert not await client.command("HEXISTS", keys.session(SESSION), "gap")
    for _ in range(2):
        await end(client, await take(client))
    assert await where(client) == []


async def test_the_place_of_a_turn_that_was_given_back_is_not_its_successors(client: RedisClient) -> None:
    """Its mark goes with it."""
    inbox = Inbox(client)
    await person(inbox, "owner")
    await person(inbox, "owner")
    whose = await client.command("HGET", keys.FAIR_KEYS, MEMBER)
    claim = await take(client)
    await LeaseQueue(client, "turns", owner="w", lease_s=60).release(claim)
    assert await client.command("HGET", keys.FAIR_KEYS, MEMBER) == b"+" + whose
    await end(client, await take(client))
    assert await client.command("HGET", keys.FAIR_KEYS, MEMBER) == whose
