"""Effects of a turn: written in one script with the ledger entry that tells of them, on a real server."""

from __future__ import annotations

import pytest

from shared.errors import BadInput, LeaseLost, TurnLimited
from shared.ids import nonce
from shared.messages.effects import SayEffect
from shared.messages.outbound import OutboundMessage
from shared.messages.transcript import EffectEntry, ToolEntry
from shared.store import keys
from shared.store.client.redis_client import RedisClient
from shared.store.delivery.outbox import Outbox
from shared.store.turns.inbox import Inbox
from shared.store.turns.queue import Claim, LeaseQueue
from shared.store.turns.turn_writes import LEDGER_CAP_BYTES, Turns
from tests.helpers.build import say

SESSION = "web:owner/a"
SAY = SayEffect(session=SESSION, line=OutboundMessage(content="by the way", turn=1, kind="notice"))
ENTRY = EffectEntry(call_id="c1", turn=1, kind="say", to=SESSION)


async def claimed(client: RedisClient) -> Claim:
    await say(Inbox(client))
    [claim] = await LeaseQueue(client, "turns", owner=nonce(), lease_s=30.0).acquire(1)
    return claim


async def lines(client: RedisClient) -> list[str]:
    read = await Outbox(client).read_after(SESSION, after=0)
    return [one.line.content for one in read if isinstance(one.line, OutboundMessage)]


async def test_a_step_and_its_effect_are_there_together_and_once(client: RedisClient) -> None:
    """Also when the answer was lost and the same step is sent again."""
    claim = await claimed(client)
    for _ in range(2):
        await Turns(client).append_step(claim, 1, ENTRY, SAY)
    assert await lines(client) == ["by the way"]
    assert await client.command("XLEN", keys.ledger(SESSION)) == 1


async def test_a_worker_without_the_lease_has_no_effect(client: RedisClient) -> None:
    """The fence stands before both."""
    claim = await claimed(client)
    await client.command("HDEL", keys.leases("turns"), claim.member)
    with pytest.raises(LeaseLost):
        await Turns(client).append_step(claim, 1, ENTRY, SAY)
    assert await lines(client) == []


async def test_a_full_ledger_takes_no_effect_either(client: RedisClient) -> None:
    """What is not on record is not done."""
    claim = await claimed(client)
    await client.command("HSET", keys.session(SESSION), "ledger", LEDGER_CAP_BYTES)
    with pytest.raises(TurnLimited):
        await Turns(client).append_step(claim, 1, ENTRY, SAY)
    assert await lines(client) == []


async def test_a_step_behind_a_hole_has_no_effect(client: RedisClient) -> None:
    """A server that lost steps gives the turn back, and whoever goes on does it again."""
    claim = await claimed(client)
    with pytest.raises(LeaseLost):
        await Turns(client).append_step(claim, 2, ENTRY, SAY)
    assert await lines(client) == []


async def test_steps_without_an_effect_say_nothing(client: RedisClient) -> None:
    """Most of them."""
    claim = await claimed(client)
    await Turns(client).append_step(claim, 1, ToolEntry(call_id="c1", name="act", content="done", turn=1))
    assert await lines(client) == []


async def test_nothing_is_written_to_a_chat_that_does_not_exist(client: RedisClient) -> None:
    """Neither the line nor the record of it is written."""
    claim = await claimed(client)
    elsewhere = SayEffect(session="web:owner/none", line=SAY.line)
    with pytest.raises(BadInput, match="none"):
        await Turns(client).append_step(claim, 1, ENTRY, elsewhere)
    assert await client.command("EXISTS", keys.outbox("web:owner/none"), keys.ledger(SESSION)) == 0


async def test_a_chat_that_is_spoken_to_moves_to_the_head_of_its_person_s_list(client: RedisClient) -> None:
    """When somebody's list is named; else the list stays as it is."""
    claim = await claimed(client)
    await say(Inbox(client), chat="owner/old")
    await client.command("ZADD", keys.chats("web", "owner"), 1, "owner/old", 2, "owner/a")
    for step, listed_for in enumerate(("", "owner"), 1):
        texts = SayEffect(session="web:owner/old", line=SAY.line, listed_for=listed_for)
        await Turns(client).append_step(claim, step, ENTRY, texts)
        first = await client.command("ZREVRANGE", keys.chats("web", "owner"), 0, 0)
        assert first == [b"owner/old" if listed_for else b"owner/a"]
