"""The server's clock falls back by an hour: nothing that was stored before waits for longer than a lease."""

from __future__ import annotations

from typing import Final

import pytest

from shared.metrics import REDIS_CLOCK_FELL_BACK, totals
from shared.store import keys
from shared.store.client.redis_client import RedisClient
from shared.store.delivery.deliveries import Cleared
from shared.store.delivery.listener_lease import ListenerLease, ListenerLock
from shared.store.fleet.provider_limits import CallAllowed, CallHeld, LimitRules, ProviderLimits
from shared.store.turns.inbox import Inbox, InboxLimits
from shared.store.turns.queue import LeaseQueue
from tests.helpers.build import message, say
from tests.helpers.parked import park
from tests.helpers.platform_chat import CHANNEL, PlatformChat, gateway, lease_one
from tests.helpers.schedules import server_ms
from tests.shared.store.test_protocol import commit

HOUR: Final = 3_600_000
LEASE_S: Final = 15.0
NOTED_MS: Final = 1000
"""The newest time is noted once a second."""

TURNS: Final = keys.queue("turns")
A: Final = keys.turn("web:owner/a")


async def hour_back(client: RedisClient, *queues: str) -> None:
    """As if the clock had fallen by an hour: what these queues have seen is an hour later than what comes now."""
    for queue in queues:
        for member in await client.command("ZRANGE", queue, 0, -1):
            await client.command("ZINCRBY", queue, HOUR, member)
        if await client.command("HEXISTS", keys.CLOCKS, queue):
            await client.command("HINCRBY", keys.CLOCKS, queue, HOUR)


def worker(client: RedisClient, owner: str) -> LeaseQueue:
    return LeaseQueue(client, "turns", owner=owner * 32, lease_s=LEASE_S)


async def waits_ms(client: RedisClient, member: str, queue: str = TURNS) -> float:
    return float(await client.command("ZSCORE", queue, member)) - await server_ms(client)


def fell() -> float:
    return sum(totals(REDIS_CLOCK_FELL_BACK).values())


async def test_what_was_due_is_due(client: RedisClient) -> None:
    """A message that waited for a worker is claimed at once, and the fall is counted once."""
    await say(Inbox(client))
    await hour_back(client, TURNS, keys.queue(keys.BACKGROUND))
    before = fell()
    assert [claim.member for claim in await worker(client, "a").acquire(1)] == [A]
    assert await worker(client, "b").acquire(1) == []
    assert fell() == before + 1


async def test_a_message_that_came_while_no_worker_was_there_counts(client: RedisClient) -> None:
    """Its gateway told what time it was: nobody claimed anything before, so nobody else did."""
    await say(Inbox(client))
    assert await client.command("HKEYS", keys.CLOCKS) == [TURNS.encode()]


async def test_the_lease_of_a_dead_worker_lapses_in_its_time(client: RedisClient) -> None:
    """And that of a living one is renewed as ever."""
    await say(Inbox(client))
    await say(Inbox(client), chat="owner/b")
    living, dead = worker(client, "a"), worker(client, "b")
    [kept], [lost] = await living.acquire(1), await dead.acquire(1)
    await hour_back(client, TURNS)
    assert await living.renew([kept]) == [0]
    assert await living.acquire(2) == []
    assert 0 < await waits_ms(client, lost.member) <= LEASE_S * 1000 + NOTED_MS
    assert 0 < await waits_ms(client, kept.member) <= LEASE_S * 1000
    assert await living.renew([kept]) == [0]


async def test_renewals_show_the_time_while_no_slot_is_free(client: RedisClient) -> None:
    """Nobody claims for an hour then. A renewal after the fall must not hide it."""
    await say(Inbox(client))
    [claim] = await worker(client, "a").acquire(1)
    await client.command("HSET", keys.CLOCKS, TURNS, 1)
    await worker(client, "a").renew([claim])
    seen = int(await client.command("HGET", keys.CLOCKS, TURNS))
    assert abs(seen - await server_ms(client)) < 60_000
    await hour_back(client, TURNS)
    await worker(client, "a").renew([claim])
    assert int(await client.command("HGET", keys.CLOCKS, TURNS)) == seen + HOUR


async def test_a_delay_of_its_own_stays_as_long_as_it_was(client: RedisClient) -> None:
    """A try after a minute is made after a minute, not after an hour and not at once."""
    await say(Inbox(client))
    queue = worker(client, "a")
    [claim] = await queue.acquire(1)
    await queue.release(claim, delay_s=60, count="errors")
    await hour_back(client, TURNS)
    assert await queue.acquire(1) == []
    assert 55_000 < await waits_ms(client, A) <= 60_000 + NOTED_MS


async def test_an_open_question_ends_at_the_time_that_it_shows(client: RedisClient) -> None:
    """People see that time, and an answer is measured by it."""
    await say(Inbox(client))
    await park(client, wait_s=600)
    before = await waits_ms(client, A)
    newest = await server_ms(client) + HOUR
    await client.command("HSET", keys.CLOCKS, TURNS, newest)
    assert await worker(client, "b").acquire(1) == []
    assert before - 60_000 < await waits_ms(client, A) <= before


async def test_a_broken_session_stops_no_repair(client: RedisClient) -> None:
    """One key of another type: the chats beside it go on."""
    await say(Inbox(client))
    await say(Inbox(client), chat="owner/b")
    await client.command("DEL", keys.session("web:owner/b"))
    await client.command("SET", keys.session("web:owner/b"), "broken")
    await hour_back(client, TURNS)
    assert [claim.member for claim in await worker(client, "a").acquire(2)] == [A]


async def test_a_window_of_merge_that_was_open_is_over(client: RedisClient) -> None:
    """It ends by a time that is stored with the message, which the commit before it reads."""
    inbox = Inbox(client, InboxLimits(busy="merge", merge_ms=60_000))
    await say(Inbox(client))
    [claim] = await worker(client, "a").acquire(1)
    await inbox.ingest(message("and", chat="owner/a"), principal="owner")
    name = keys.inbox("web:owner/a")
    entries = await client.command("XRANGE", name, "-", "+")
    await client.command("DEL", name)
    for id, parts in entries:
        ends = parts.index(b"d") + 1 if b"d" in parts else None
        moved = [b"%d" % (int(part) + HOUR) if at == ends else part for at, part in enumerate(parts)]
        await client.command("XADD", name, id, *moved)
    await commit(client, claim)
    assert await waits_ms(client, A) <= 0


async def test_a_person_who_was_served_before_does_not_come_last(client: RedisClient) -> None:
    """The order among people goes by when each was last served; a time to come counts as long ago."""
    await client.command("ZADD", keys.LAST_SERVED, await server_ms(client) + HOUR, "p1", 3, keys.BACKGROUND)
    for number, person in enumerate(("p1", "p2", "p3", "p3", "p3")):
        await Inbox(client).ingest(message(chat=f"owner/{number}"), principal="owner")
        await client.command("HSET", keys.FAIR_KEYS, keys.turn(f"web:owner/{number}"), person)
    assert [claim.member for claim in await worker(client, "a").acquire(1)] == [keys.turn("web:owner/0")]


async def test_a_sender_may_write(client: RedisClient) -> None:
    """The brake says until when a sender's messages are paid for: a minute ahead at most."""
    inbox = Inbox(client, InboxLimits(sender_per_minute=2))
    await inbox.ingest(message(), principal="owner")
    [brake] = await client.command("KEYS", keys.brake("*"))
    await client.command("SET", brake, int(await client.command("GET", brake)) + HOUR)
    await inbox.ingest(message(), principal="owner")
    await inbox.ingest(message(), principal="owner")


async def test_chats_are_delivered(client: RedisClient) -> None:
    """As with turns: what was due is due."""
    deliveries, chat = gateway(client), PlatformChat(client, "1")
    assert (await deliveries.acquire(1))[0] == []
    await chat.ask_and_answer("x")
    await client.command("HSET", keys.CLOCKS, keys.outqueue(CHANNEL), await server_ms(client))
    await hour_back(client, keys.outqueue(CHANNEL))
    before = fell()
    assert (await lease_one(deliveries)).session == chat.session
    assert fell() == before + 1


async def test_a_pause_of_a_platform_is_over(client: RedisClient) -> None:
    """Its key would expire an hour later. When it began is in it, and that is still to come."""
    deliveries, chat = gateway(client), PlatformChat(client, "1")
    await chat.ask_and_answer("x")
    held = await lease_one(deliveries)
    await deliveries.pause(60)
    await client.command("INCRBY", keys.outpause(CHANNEL), HOUR)
    assert isinstance(await deliveries.begin_post(held, 1, 0, []), Cleared)


async def test_the_lock_of_a_listener_that_died_is_free_in_its_time(client: RedisClient) -> None:
    """After a lease at most; whoever lives renews it."""
    mine, other = (ListenerLock(client, "discord:0", lease_s=LEASE_S) for _ in range(2))
    assert isinstance(await mine.acquire(), ListenerLease)
    key = keys.lock("discord:0")
    await client.command("HINCRBY", key, "until", HOUR)
    wait_s = await other.acquire()
    assert isinstance(wait_s, float)
    assert int(await client.command("HGET", key, "until")) - await server_ms(client) <= LEASE_S * 1000


@pytest.mark.parametrize("fields", [("closed_at", "open_at"), ("hang",)])
async def test_a_provider_that_was_closed_is_tried(client: RedisClient, fields: tuple[str, ...]) -> None:
    """One call may see whether it answers, and what comes of it counts."""
    limits, rules = ProviderLimits(client), LimitRules()
    first = await limits.enter("way", rules)
    assert isinstance(first, CallAllowed)
    await limits.report("way", rules, first, "rate_limit", retry_after_s=0.25)
    if fields == ("hang",):
        for field in ("closed_at", "open_at"):
            await client.command("HINCRBY", keys.limit("way"), field, -1000)
        assert isinstance(await limits.enter("way", rules), CallAllowed)
    for field in fields:
        await client.command("HINCRBY", keys.limit("way"), field, HOUR)
    trial = await limits.enter("way", rules)
    assert isinstance(trial, CallAllowed)
    await limits.report("way", rules, trial, "ok")
    assert isinstance(await limits.enter("way", rules), CallAllowed)


async def test_the_rate_of_a_provider_is_free(client: RedisClient) -> None:
    """What was paid ahead is a burst and a moment at most."""
    limits, rules = ProviderLimits(client), LimitRules(per_minute=60)
    assert isinstance(await limits.enter("way", rules), CallAllowed)
    await client.command("HINCRBY", keys.limit("way"), "tat", HOUR * 1000)
    assert isinstance(await limits.enter("way", rules), CallAllowed)
    await client.command("HINCRBY", keys.limit("way"), "tat", 12_000_000)
    assert isinstance(await limits.enter("way", rules), CallAllowed | CallHeld)
