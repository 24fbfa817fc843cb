"""Turns that end in one moment are committed by one call, and each for itself."""

from __future__ import annotations

import asyncio

import pytest

from shared.errors import LeaseLost
from shared.messages.live import TurnEvent
from shared.messages.transcript import AssistantEntry
from shared.store import keys
from shared.store.client.connection import ReplyError
from shared.store.client.redis_client import RedisClient
from shared.store.turns import turn_writes
from shared.store.turns.inbox import Inbox
from shared.store.turns.queue import Claim, LeaseQueue
from shared.store.turns.turn_writes import Committed, Turns
from tests.helpers.build import reply, say


@pytest.fixture
def queue(client: RedisClient) -> LeaseQueue:
    return LeaseQueue(client, "turns", owner="a" * 32, lease_s=15.0)


async def held(client: RedisClient, queue: LeaseQueue, many: int) -> list[Claim]:
    """Claims of chats that have one message each."""
    for n in range(many):
        await say(Inbox(client), chat=f"owner/{n}")
    return await queue.acquire(many)


async def end(turns: Turns, claim: Claim, text: str = "ok") -> Committed:
    assert claim.turn is not None
    n = claim.turn.n
    entry = AssistantEntry(content=text, turn=n)
    return await turns.commit(claim, history=[entry], lines=[reply(text, n)], event=TurnEvent(n, "done"))


async def calls(client: RedisClient) -> int:
    stats = (await client.command("INFO", "commandstats")).decode()
    rows = [row for row in stats.splitlines() if row.startswith(("cmdstat_evalsha:", "cmdstat_eval:"))]
    return sum(int(row.partition("calls=")[2].partition(",")[0]) for row in rows)


async def test_turns_that_end_together_take_one_call(client: RedisClient, queue: LeaseQueue) -> None:
    """Whatever their number is, up to so many."""
    turns, claims = Turns(client), await held(client, queue, 20)
    await end(turns, claims.pop())  # the server knows the script now
    before = await calls(client)
    assert await asyncio.gather(*(end(turns, claim) for claim in claims)) == [Committed(True, 1, 0, untitled=True)] * 19
    assert await calls(client) - before == 1
    assert await client.pipeline(
        [("ZCARD", keys.queue("turns")), ("HLEN", keys.leases("turns")), ("HLEN", keys.FAIR_KEYS)]
    ) == [0, 0, 0]


async def test_many_turns_and_large_ones_are_not_one_long_call(
    client: RedisClient, queue: LeaseQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server does nothing else while a script runs."""
    monkeypatch.setattr(turn_writes, "AT_ONCE", 3)
    monkeypatch.setattr(turn_writes, "AT_ONCE_BYTES", 4000)
    turns, claims = Turns(client), await held(client, queue, 8)
    await end(turns, claims.pop())
    before = await calls(client)
    texts = ["x" * 5000, "a", "b", "c", "d", "x" * 3000, "e"]
    await asyncio.gather(*(end(turns, claim, text) for claim, text in zip(claims, texts, strict=True)))
    assert await calls(client) - before == 5, "the large one, three, one, the other large one, one"
    for claim, text in zip(claims, texts, strict=True):
        assert text.encode() in (await client.command("LRANGE", keys.history(claim.session), 0, -1))[0]


async def test_one_that_cannot_be_committed_is_no_matter_of_the_others(client: RedisClient, queue: LeaseQueue) -> None:
    """A lost lease, a broken key, and one that was committed before, beside one that is well."""
    turns, claims = Turns(client), await held(client, queue, 4)
    lost, broken, known, well = claims
    await client.command("HSET", keys.leases("turns"), lost.member, "another:1")
    await client.command("SET", keys.history(broken.session), "no list")
    await end(turns, known)
    found = await asyncio.gather(*(end(turns, claim) for claim in claims), return_exceptions=True)
    assert [type(one) for one in found] == [LeaseLost, ReplyError, Committed, Committed]
    assert "WRONGTYPE" in str(found[1])
    assert found[2:] == [Committed(False, 0, 0), Committed(True, 1, 0, untitled=True)]
    assert await client.command("HEXISTS", keys.leases("turns"), well.member) == 0
    assert await client.command("HEXISTS", keys.leases("turns"), broken.member) == 1


async def test_who_is_gone_takes_nobody_along(client: RedisClient, queue: LeaseQueue) -> None:
    """A turn that is cancelled while its commit is on the way; whether that counted, the store knows."""
    turns, (gone, stays) = Turns(client), await held(client, queue, 2)
    leaving, staying = asyncio.create_task(end(turns, gone)), asyncio.create_task(end(turns, stays))
    await asyncio.sleep(0)
    leaving.cancel()
    assert (await staying).first
    assert leaving.cancelled()
