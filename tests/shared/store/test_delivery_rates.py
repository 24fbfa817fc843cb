"""How often a platform may be called, counted in Redis for all replicas, and what is told of the outboxes."""

from __future__ import annotations

import asyncio

import pytest

from shared.metrics import REGISTRY
from shared.process.fleet_gauges import CACHED_S, FleetGauges
from shared.store import keys
from shared.store.client.redis_client import RedisClient
from shared.store.delivery.deliveries import Cleared, DeliveryQueue, LeasedChat, RateKey, Wait
from shared.store.delivery.outbox import OutboxReading, read_outboxes
from tests.helpers.clock import HandClock
from tests.helpers.platform_chat import CHANNEL, PlatformChat, deliver, gateway, lease_one

SLOW = RateKey("bot", per_s=0.01, burst=3)
"""Three at once, then one in 100 s: none comes by itself while a test runs."""


async def talking(client: RedisClient, chat: str) -> tuple[DeliveryQueue, LeasedChat]:
    """A gateway that holds a chat with a line to send."""
    deliveries, one = gateway(client), PlatformChat(client, chat)
    await one.ask_and_answer("x")
    return deliveries, await lease_one(deliveries)


async def time_passes(client: RedisClient, rate: RateKey, s: float) -> None:
    """As much more is paid for."""
    key = keys.outrate(CHANNEL, rate.name)
    await client.command("SET", key, int(await client.command("GET", key)) - round(s * 1e6), "KEEPTTL")


async def test_two_gateways_share_one_budget(redis_url: str, client: RedisClient) -> None:
    """A burst at once, then each in its time; who has to wait is told how long, and has written nothing."""
    other = RedisClient(redis_url)
    try:
        (first, a), (second, b) = await talking(client, "1"), await talking(other, "2")
        for deliveries, held in ((first, a), (second, b), (first, a)):
            assert await deliveries.begin_post(held, 1, 0, [SLOW]) == Cleared(unclear=False)
        waits = await asyncio.gather(first.begin_post(a, 1, 0, [SLOW]), second.begin_post(b, 1, 0, [SLOW]))
        assert all(isinstance(wait, Wait) and 99 < wait.seconds <= 100 for wait in waits)
        await time_passes(client, SLOW, 100)
        assert await second.begin_post(b, 1, 0, [SLOW]) == Cleared(unclear=False)
        assert isinstance(await first.begin_post(a, 1, 0, [SLOW]), Wait)
    finally:
        await other.close()


async def test_a_call_that_waits_for_one_budget_takes_nothing_of_another(client: RedisClient) -> None:
    """Else a chat in which much is said would use up what all others have."""
    deliveries, held = await talking(client, "1")
    own = RateKey("chat:1", per_s=0.01, burst=1)
    assert isinstance(await deliveries.begin_post(held, 1, 0, [SLOW, own]), Cleared)
    for _ in range(5):
        assert isinstance(await deliveries.begin_post(held, 1, 0, [SLOW, own]), Wait)
    assert isinstance(await deliveries.begin_post(held, 1, 0, [SLOW]), Cleared)
    assert isinstance(await deliveries.begin_post(held, 1, 0, [SLOW]), Cleared)
    assert isinstance(await deliveries.begin_post(held, 1, 0, [SLOW]), Wait)


async def test_a_post_that_has_to_wait_is_not_about_to_be_sent(client: RedisClient) -> None:
    """Whoever takes the chat over has no doubt about it."""
    deliveries, held = await talking(client, "1")
    await deliveries.pause(60)
    assert isinstance(await deliveries.begin_post(held, 1, 0), Wait)
    await client.command("DEL", keys.outpause(CHANNEL))
    await deliveries.requeue(held, 0, unclear=True)
    assert not (await lease_one(gateway(client))).unclear


async def test_an_edit_is_off_the_same_budget(client: RedisClient) -> None:
    """0 = it may be made; a post right after it has to wait."""
    deliveries, held = await talking(client, "1")
    assert [await deliveries.reserve_call(held, [SLOW]) for _ in range(3)] == [0.0, 0.0, 0.0]
    assert 99 < await deliveries.reserve_call(held, [SLOW]) <= 100
    assert isinstance(await deliveries.begin_post(held, 1, 0, [SLOW]), Wait)
    assert await deliveries.reserve_call(held) == 0


async def test_what_leaves_a_reserve_never_takes_what_others_need(redis_url: str, client: RedisClient) -> None:
    """Edits of two gateways that show how turns go use up what is beyond the reserve; a reply goes out at once, however
    many of them come, and they come again when the budget has recovered."""
    other = RedisClient(redis_url)
    try:
        (first, a), (second, b) = await talking(client, "1"), await talking(other, "2")
        spare = RateKey("bot", per_s=0.01, burst=4, reserve=2)
        full = RateKey("bot", per_s=0.01, burst=4)
        assert [await first.reserve_call(a, [spare]), await second.reserve_call(b, [spare])] == [0.0, 0.0]
        for deliveries, held in ((first, a), (second, b)):
            assert 99 < await deliveries.reserve_call(held, [spare]) <= 100
        assert await first.begin_post(a, 1, 0, [full]) == Cleared(unclear=False)
        assert 199 < await second.reserve_call(b, [spare]) <= 200
        assert await second.begin_post(b, 1, 0, [full]) == Cleared(unclear=False)
        assert isinstance(await first.begin_post(a, 1, 0, [full]), Wait)
        await time_passes(client, full, 200)
        assert await second.reserve_call(b, [spare]) > 0, "that is what a reply may need"
        await time_passes(client, full, 100)
        assert await second.reserve_call(b, [spare]) == 0
    finally:
        await other.close()


async def test_a_budget_is_gone_when_all_is_paid_for(client: RedisClient) -> None:
    """A chat that is quiet leaves nothing."""
    deliveries, held = await talking(client, "1")
    rate = RateKey("chat:1", per_s=2, burst=5)
    assert isinstance(await deliveries.begin_post(held, 1, 0, [rate]), Cleared)
    assert 0 < await client.command("PTTL", keys.outrate(CHANNEL, "chat:1")) <= 501


async def test_a_clock_that_fell_back_holds_nobody_up(client: RedisClient) -> None:
    """The server's clock was set back by an hour. More than a burst can never be paid ahead."""
    deliveries, held = await talking(client, "1")
    rate = RateKey("bot", per_s=10, burst=3)
    assert isinstance(await deliveries.begin_post(held, 1, 0, [rate]), Cleared)
    await client.command("PERSIST", keys.outrate(CHANNEL, "bot"))
    await time_passes(client, rate, -3600)
    assert isinstance(await deliveries.begin_post(held, 1, 0, [rate]), Cleared)


async def test_a_pause_holds_for_every_replica_and_is_never_made_shorter(client: RedisClient) -> None:
    """The platform said so of the whole bot: nobody takes a chat, nothing is sent or edited; other channels go on."""
    deliveries, held = await talking(client, "1")
    other = gateway(client)
    await PlatformChat(client, "2").ask_and_answer("x")
    await deliveries.pause(60)
    await other.pause(1)
    assert await other.acquire(5) == ([], 1.0)
    wait = await deliveries.begin_post(held, 1, 0)
    assert isinstance(wait, Wait)
    assert 50 < wait.seconds <= 60
    assert 50 < await deliveries.reserve_call(held) <= 60
    assert await deliveries.renew([held]) == set()
    await other.pause(120)
    assert await client.command("PTTL", keys.outpause(CHANNEL)) > 100_000
    await client.command("PEXPIRE", keys.outpause(CHANNEL), 1)
    slack = DeliveryQueue(client, "slack", lease_s=30)
    assert isinstance(await slack.acquire(5), tuple)


# What is told


def gauge(name: str, channel: str) -> float | None:
    return REGISTRY.get_sample_value(f"shoal_{name}", {"channel": channel})


async def test_the_gauges_say_how_many_chats_wait_and_for_how_long(client: RedisClient) -> None:
    """Not those of which only a turn is under way; and 0 when all is delivered."""
    clock = HandClock()
    readings = FleetGauges(client, clock=clock)
    deliveries, chat = gateway(client), PlatformChat(client)
    await chat.ask_and_answer("one", "two")
    await PlatformChat(client, "43").ask()
    await client.command("ZINCRBY", keys.outwaits(CHANNEL), -5000, chat.session)
    await readings.refresh()
    assert gauge("outbox_waiting", CHANNEL) == 1
    assert 5 <= (gauge("outbox_oldest_seconds", CHANNEL) or 0) < 60
    both, _ = await deliveries.acquire(5)
    held = next(one for one in both if one.session == chat.session)
    await deliver(deliveries, held, 1)
    [reading] = await read_outboxes(client)
    assert (reading.channel, reading.waiting, reading.oldest_s < 5) == (CHANNEL, 1, True), "the next line is younger"
    await deliver(deliveries, held, 2)
    assert await read_outboxes(client) == [OutboxReading(CHANNEL, 0, 0.0)]
    clock.at += 2 * CACHED_S
    await readings.refresh()
    assert gauge("outbox_waiting", CHANNEL) == gauge("outbox_oldest_seconds", CHANNEL) == 0


async def test_the_age_is_that_of_the_oldest_line_whatever_comes_after_it(client: RedisClient) -> None:
    """A new line does not make the wait of an old one shorter; its age goes with it to whoever delivers it."""
    chat = PlatformChat(client)
    await chat.ask_and_answer("one")
    [[id, _]] = await client.command("XRANGE", keys.outbox(chat.session), "-", "+")
    before = await client.command("ZSCORE", keys.outwaits(CHANNEL), chat.session)
    await chat.ask_and_answer("two")
    assert await client.command("ZSCORE", keys.outwaits(CHANNEL), chat.session) == before
    [[_, fields]] = await client.command("XRANGE", keys.outbox(chat.session), id, id)
    assert fields[2] == b"at"
    assert fields[3] == before
    held = await lease_one(gateway(client))
    assert held.pending[0].age_s >= held.pending[1].age_s >= 0


async def test_a_channel_that_was_never_used_is_reported_nowhere(client: RedisClient) -> None:
    """No series of nothing."""
    assert await read_outboxes(client) == []


@pytest.mark.parametrize("kind", ["outqueue", "outwaits"])
async def test_a_channel_that_nobody_serves_any_more_is_forgotten(client: RedisClient, kind: str) -> None:
    """With the logs of its chats."""
    await PlatformChat(client).ask_and_answer("x")
    assert 0 < await client.command("PTTL", f"shoal:{{0ax}}:{kind}:{CHANNEL}") <= 365 * 86_400_000
