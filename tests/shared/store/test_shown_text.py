"""The record of the text that stands on screens: who gets it, and when it goes."""

from __future__ import annotations

import pytest

from shared.messages.live import DeltaEvent, TurnEvent, encode_live
from shared.store import keys
from shared.store.client.redis_client import RedisClient
from shared.store.delivery.fanout import KEEP_MS, publish_text
from shared.store.delivery.outbox import Outbox
from shared.store.sessions.erase import erase, forget
from shared.store.turns.inbox import Inbox
from shared.store.turns.queue import Claim, LeaseQueue
from shared.store.turns.turn_writes import Turns
from tests.helpers.build import say
from tests.helpers.fleet import watching
from tests.helpers.wait import eventually

SESSION = "web:owner/a"
DELTA = DeltaEvent(1, 1, 0, "Once", full=True, step=2)


async def shown_by(client: RedisClient, queue: LeaseQueue) -> Claim:
    """A running turn of which somebody has seen a text."""
    await say(Inbox(client), "tell me")
    [claim] = await queue.acquire(1)
    async with watching(client, SESSION):
        assert await publish_text(client, SESSION, claim.fence, DELTA, recorded=True) == 1
    return claim


async def recorded(client: RedisClient) -> bool:
    return bool(await client.command("EXISTS", keys.live(SESSION)))


async def test_a_successor_and_a_page_get_it(client: RedisClient) -> None:
    """In calls that they make anyway; a first attempt gets nothing."""
    queue = LeaseQueue(client, "turns", owner="a" * 32, lease_s=30)
    claim = await shown_by(client, queue)
    assert claim.turn is not None
    assert claim.turn.shown == ()
    assert (await Outbox(client).position(SESSION)).shown == (DELTA,)
    await queue.release(claim)
    [again] = await queue.acquire(1)
    assert again.turn is not None
    assert again.turn.shown == (encode_live(DELTA),)


@pytest.mark.parametrize("others_wait", [False, True])
async def test_it_goes_with_the_turn(client: RedisClient, *, others_wait: bool) -> None:
    """In the commit itself; a page that opens later shows the reply alone."""
    claim = await shown_by(client, LeaseQueue(client, "turns", owner="a" * 32, lease_s=30))
    if others_wait:
        await say(Inbox(client), "and then?")
    assert await recorded(client)
    await Turns(client).commit(claim, history=[], lines=[], event=TurnEvent(1, "done"))
    assert not await recorded(client)
    assert (await Outbox(client).position(SESSION)).shown == ()


@pytest.mark.parametrize("end", [forget, erase])
async def test_it_is_forgotten_with_the_chat(client: RedisClient, end: type) -> None:
    """What the model wrote is a part of the conversation."""
    await shown_by(client, LeaseQueue(client, "turns", owner="a" * 32, lease_s=30))
    await end(client, SESSION)
    assert not await recorded(client)


@pytest.mark.parametrize("junk", [("SET", "junk"), ("RPUSH", b"\xff\x00", b'{"type":"of a version to come"}', b"7")])
async def test_a_broken_record_holds_up_no_turn(client: RedisClient, junk: tuple[str | bytes, ...]) -> None:
    """It counts as none, and goes with the next commit."""
    queue = LeaseQueue(client, "turns", owner="a" * 32, lease_s=30)
    claim = await shown_by(client, queue)
    await client.command("DEL", keys.live(SESSION))
    await client.command(str(junk[0]), keys.live(SESSION), *junk[1:])
    await queue.release(claim)
    [again] = await queue.acquire(1)
    await Turns(client).commit(again, history=[], lines=[], event=TurnEvent(1, "done"))
    assert not await recorded(client)
    assert (await Outbox(client).position(SESSION)).shown == ()


async def test_only_what_is_written_under_the_lease_is_recorded(client: RedisClient) -> None:
    """From a whole text on, whether somebody watches or not; one without its beginning is only shown."""
    queue = LeaseQueue(client, "turns", owner="a" * 32, lease_s=30)
    await say(Inbox(client), "tell me")
    [claim] = await queue.acquire(1)
    more = DeltaEvent(1, 1, 1, " upon")

    async def publish(
        delta: DeltaEvent, *, by: tuple[str, str] = claim.fence, recorded: bool = True
    ) -> tuple[int, int]:
        receivers = await publish_text(client, SESSION, by, delta, recorded=recorded)
        return receivers, int(await client.command("LLEN", keys.live(SESSION)))

    assert await publish(DELTA, by=(claim.member, "another's:1")) == (-1, 0)
    assert await publish(more) == (0, 0)
    assert await publish(DELTA) == (0, 1)
    async with watching(client, SESSION) as seen:
        assert await publish(DELTA, recorded=False) == (1, 1)
        assert await publish(more) == (1, 2)
        assert await publish(DELTA) == (1, 1)
        assert await publish(more) == (1, 2)
        assert 0 < int(await client.command("PTTL", keys.live(SESSION))) <= KEEP_MS
        assert await publish(DELTA) == (1, 1)
        await eventually(lambda: len(seen.deltas()) == 5)
