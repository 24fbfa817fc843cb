"""What goes wrong on the way out, on a real Valkey: unclear sends, refusals, closed chats, outages."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from shared.errors import RedisAway
from shared.messages.schedule import Schedule
from shared.store import keys
from shared.store.client.pubsub import pubsub
from shared.store.client.redis_client import RedisClient, Value
from shared.store.client.scripts import Script
from shared.store.delivery.deliveries import (
    DROPPED_AT_ONCE,
    LOOK_S,
    OUTBOX_CAP,
    Cleared,
    DeliveryQueue,
    RateKey,
    ResendGuard,
)
from shared.store.delivery.outbox import Outbox
from shared.store.schedules.schedules import Schedules
from shared.store.sessions.erase import erase
from shared.store.turns.dead_letters import DeadLetters
from shared.store.turns.inbox import Inbox, InboxLimits
from tests.helpers.clock import HandClock
from tests.helpers.platform_chat import CHANNEL, LEASE_S, PlatformChat, deliver, gateway, lease_one, texts
from tests.helpers.schedules import schedule


@pytest.fixture
def chat(client: RedisClient) -> PlatformChat:
    return PlatformChat(client)


def platform_schedule() -> Schedule:
    return msgspec.structs.replace(schedule(chat="42"), channel=CHANNEL)


def letters(client: RedisClient) -> DeadLetters:
    return DeadLetters(client, Inbox(client))


# Nobody knows


@pytest.mark.parametrize(
    ("offers", "unclear", "unsure"), [("nothing", True, b"1"), ("key", True, b"1"), ("look-up", False, None)]
)
async def test_what_a_dead_gateway_was_about_to_send_is_unclear(
    client: RedisClient, chat: PlatformChat, offers: ResendGuard, unclear: bool, unsure: bytes | None
) -> None:
    """Whoever takes the chat over knows it, also after a look; who could ask the platform has asked."""
    first, second = gateway(client), gateway(client, offers)
    await chat.ask_and_answer("one")
    assert await first.begin_post(await lease_one(first), 1, 0) == Cleared(unclear=False)
    await chat.time_passes()
    held = await lease_one(second)
    look = await second.read_chat(held)
    assert look is not None
    assert held.unclear
    assert look.unclear
    assert await second.begin_post(held, 1, 0) == Cleared(unclear=unclear)
    assert await client.command("HGET", keys.out(chat.session), "unsure") == unsure
    look = await second.read_chat(held)
    assert look is not None
    assert not look.unclear, "its own mark"
    assert await second.finish_post(held, 1, 0, last=True, id="x")
    assert await second.release_quiet(held)
    assert "out:telegram:42" not in await chat.keys()


async def test_only_the_post_that_was_under_way_is_unclear(client: RedisClient, chat: PlatformChat) -> None:
    """Neither the ones before it nor the ones behind."""
    first, second = gateway(client), gateway(client)
    await chat.ask_and_answer("long", "two")
    held = await lease_one(first)
    assert await first.begin_post(held, 1, 0) == Cleared(unclear=False)
    assert await first.finish_post(held, 1, 0, last=False, id="a")
    assert await first.begin_post(held, 1, 1) == Cleared(unclear=False)
    await chat.time_passes()
    held = await lease_one(second)
    assert (held.part, held.unclear) == (1, True)
    assert await second.begin_post(held, 1, 1) == Cleared(unclear=True)
    assert await second.finish_post(held, 1, 1, last=True, id="b")
    await deliver(second, held, 2)


async def test_a_gateway_that_died_after_a_post_leaves_nothing_unclear(client: RedisClient, chat: PlatformChat) -> None:
    """What was noted is known."""
    first = gateway(client)
    await chat.ask_and_answer("long")
    held = await lease_one(first)
    assert await first.begin_post(held, 1, 0) is not None
    assert await first.finish_post(held, 1, 0, last=False, id="a")
    await chat.time_passes()
    held = await lease_one(gateway(client))
    assert (held.part, held.unclear, held.owner_lost) == (1, False, True)


@pytest.mark.parametrize("cut", [True, False])
async def test_a_send_without_an_answer_stays_unclear_and_one_that_was_refused_does_not(
    client: RedisClient, chat: PlatformChat, cut: bool
) -> None:
    """Also for the same gateway when it has the chat again."""
    deliveries = gateway(client)
    await chat.ask_and_answer("one")
    held = await lease_one(deliveries)
    assert await deliveries.begin_post(held, 1, 0) == Cleared(unclear=False)
    await deliveries.requeue(held, 0, unclear=cut)
    assert (await lease_one(deliveries)).unclear is cut


async def test_whoever_puts_a_chat_off_takes_back_only_its_own_mark(client: RedisClient, chat: PlatformChat) -> None:
    """A gateway that sent nothing knows nothing of what one before it sent."""
    first, second = gateway(client), gateway(client)
    await chat.ask_and_answer("one")
    assert await first.begin_post(await lease_one(first), 1, 0) is not None
    await chat.time_passes()
    await second.requeue(await lease_one(second), 0, unclear=False)
    assert (await lease_one(second)).unclear


# Later


async def test_what_is_put_off_waits_alone_and_in_order(client: RedisClient, chat: PlatformChat) -> None:
    """Nobody takes it before its time, whatever is added; other chats go on."""
    deliveries, other = gateway(client), PlatformChat(client, "43")
    await chat.ask_and_answer("one")
    await deliveries.requeue(await lease_one(deliveries), 600, unclear=False)
    await chat.ask_and_answer("two")
    await other.ask()
    held, wait_s = await deliveries.acquire(5)
    assert ([one.session for one in held], wait_s) == ([other.session], LOOK_S)
    await chat.time_passes(599_000)
    assert (await deliveries.acquire(5))[0] == []
    await chat.time_passes(2_000)
    assert texts(await lease_one(deliveries)) == ["one", "two"]


async def test_acquire_returns_how_long_the_next_chat_has_to_wait(client: RedisClient, chat: PlatformChat) -> None:
    """When that is less than the time after which everybody looks anyway."""
    deliveries = gateway(client)
    await chat.ask_and_answer("one")
    await deliveries.requeue(await lease_one(deliveries), 0.5, unclear=False)
    assert 0 < (await deliveries.acquire(5))[1] <= 0.5


async def test_a_chat_given_back_at_once_is_announced_to_waiting_ones(client: RedisClient, chat: PlatformChat) -> None:
    """A drain hands its chats over within a moment; a chat that is put off wakes nobody."""
    deliveries = gateway(client)
    await chat.ask_and_answer("one")
    held = await lease_one(deliveries)
    async with pubsub(client) as news:
        news.subscribe(deliveries.news)
        assert await news.next(5) is not None
        await deliveries.requeue(held, 60, unclear=False)
        await chat.time_passes()
        await deliveries.requeue(await lease_one(deliveries), 0, unclear=False, counts=False)
        announced = await news.next(5)
        assert announced is not None
        assert announced.data.decode() == chat.session
        assert await news.next(0.05) is None


async def test_tries_are_counted_until_something_arrives(client: RedisClient, chat: PlatformChat) -> None:
    """So that waits can grow; a drain is none."""
    deliveries = gateway(client)
    await chat.ask_and_answer("long", "two")
    for counts in (True, False, True):
        await deliveries.requeue(await lease_one(deliveries), 0, unclear=False, counts=counts)
    held = await lease_one(deliveries)
    assert held.tries == 2
    assert await deliveries.begin_post(held, 1, 0) is not None
    assert await deliveries.finish_post(held, 1, 0, last=False, id="a")
    look = await deliveries.read_chat(held)
    assert look is not None
    assert look.tries == 0
    await deliveries.requeue(held, 0, unclear=False)
    held = await lease_one(deliveries)
    assert held.tries == 1
    await deliver(deliveries, held, 1, part=1)
    await deliveries.requeue(held, 0, unclear=False, counts=False)
    assert (await lease_one(deliveries)).tries == 0


# Refused


async def test_a_line_that_is_refused_is_a_dead_letter_and_the_next_one_goes_on(
    client: RedisClient, chat: PlatformChat
) -> None:
    """With the line, its number, and what the platform said; by its kind it is known why."""
    deliveries = gateway(client)
    await chat.ask_and_answer("bad", "good", "old")
    held = await lease_one(deliveries)
    assert await deliveries.begin_post(held, 1, 0) is not None
    assert await deliveries.give_up_line(held, 1, "text is too long")
    await deliver(deliveries, held, 2)
    assert await deliveries.give_up_line(held, 3, "waits for a day", too_late=True)
    assert await deliveries.release_quiet(held)
    late, refused = await letters(client).newest()
    assert (refused.reason, refused.session, refused.turn, refused.why) == (
        "undeliverable", chat.session, 1, "text is too long",
    )  # fmt: skip
    assert (refused.undelivered, refused.unsure, refused.channel, late.reason) == (True, 0, CHANNEL, "too_late")
    assert "out:telegram:42" not in await chat.keys()
    assert await client.command("EXISTS", keys.outwaits(CHANNEL)) == 0


@pytest.mark.parametrize("asked", [False, True])
async def test_a_letter_says_that_its_line_may_have_arrived(
    client: RedisClient, chat: PlatformChat, asked: bool
) -> None:
    """After an unclear send, sent again since or not."""
    first, second = gateway(client), gateway(client)
    await chat.ask_and_answer("one", "two")
    assert await first.begin_post(await lease_one(first), 1, 0) is not None
    await chat.time_passes()
    held = await lease_one(second)
    if asked:
        assert await second.begin_post(held, 1, 0) == Cleared(unclear=True)
    assert await second.give_up_line(held, 1, "a day old", too_late=True)
    assert await second.give_up_line(held, 2, "a day old", too_late=True)
    assert [letter.unsure for letter in await letters(client).newest()] == [0, 1]


async def test_the_letter_of_a_line_can_be_put_back_once(client: RedisClient, chat: PlatformChat) -> None:
    """At the end of its outbox, and the chat is due; done again, there is nothing to do."""
    deliveries = gateway(client)
    await chat.ask_and_answer("bad", "good")
    held = await lease_one(deliveries)
    assert await deliveries.give_up_line(held, 1, "no")
    [letter] = await letters(client).newest()
    accepted = await letters(client).replay(letter)
    assert accepted is not None
    assert accepted.seq == 3
    assert await letters(client).replay(letter) is None
    assert await letters(client).count() == 0
    assert texts(await deliveries.read_chat(held)) == ["good", "bad"]
    await deliver(deliveries, held, 2)
    await deliver(deliveries, held, 3)
    assert await deliveries.release_quiet(held)
    await client.command("XADD", keys.DEAD, "*", "member", f"out:{chat.session}", "n", 1, "reason", "x", "m", b"\x80")
    [letter] = await letters(client).newest()
    assert await letters(client).replay(letter) is not None
    assert len((await lease_one(deliveries)).pending) == 1


# Closed


async def test_a_chat_that_is_closed_loses_what_waited_with_a_record_and_its_schedules_rest(
    client: RedisClient, chat: PlatformChat
) -> None:
    """Blocked: what came after the try is tried itself."""
    deliveries, schedules = gateway(client), Schedules(client)
    await schedules.add(platform_schedule(), 10**15)
    await chat.ask_and_answer("one", "two")
    held = await lease_one(deliveries)
    assert await deliveries.begin_post(held, 1, 0) is not None
    await chat.ask_and_answer("three")
    assert await deliveries.give_up_line(held, 1, "403: bot was blocked", drop_all=True)
    look = await deliveries.read_chat(held)
    assert look is not None
    assert (texts(look), look.closed) == (["three"], True)
    assert [(one.reason, one.turn) for one in await letters(client).newest()] == [
        ("chat_closed", 2), ("chat_closed", 1),
    ]  # fmt: skip
    assert [one.paused for one in await schedules.of_session(chat.session)] == [True]
    assert await deliveries.give_up_line(held, 3, "403", drop_all=True)
    assert await deliveries.release_quiet(held)
    assert await client.command("HKEYS", keys.out(chat.session)) == [b"closed"]


async def test_without_a_try_only_the_first_line_goes_with_a_closed_chat(
    client: RedisClient, chat: PlatformChat
) -> None:
    """Another gateway's mark says nothing of what this one tried."""
    first, second = gateway(client), gateway(client)
    await chat.ask_and_answer("one", "two")
    assert await first.begin_post(await lease_one(first), 1, 0) is not None
    await chat.time_passes()
    held = await lease_one(second)
    assert await second.give_up_line(held, 1, "403", drop_all=True)
    assert texts(await second.read_chat(held)) == ["two"]


async def test_a_closed_chat_with_much_to_say_is_emptied_by_and_by(client: RedisClient, chat: PlatformChat) -> None:
    """Some lines with each try, so that nobody is held up."""
    deliveries = gateway(client)
    await chat.ask_and_answer(*(f"line {n}" for n in range(DROPPED_AT_ONCE + 2)))
    held = await lease_one(deliveries)
    assert await deliveries.begin_post(held, 1, 0) is not None
    assert await deliveries.give_up_line(held, 1, "403", drop_all=True)
    assert texts(await deliveries.read_chat(held)) == [f"line {DROPPED_AT_ONCE}", f"line {DROPPED_AT_ONCE + 1}"]
    assert await letters(client).count() == DROPPED_AT_ONCE


@pytest.mark.parametrize("how", ["person", "arrived"])
async def test_a_chat_opens_again_and_its_schedules_go_on(client: RedisClient, chat: PlatformChat, how: str) -> None:
    """By a person's message, or by a post that arrives; not by a bot, nor by nothing."""
    limits = InboxLimits(bot_turns=100)
    chat = PlatformChat(client, limits=limits)
    deliveries, schedules = gateway(client), Schedules(client)
    await schedules.add(platform_schedule(), 10**15)
    await chat.ask_and_answer("one", "", "three")
    held = await lease_one(deliveries)
    assert await deliveries.give_up_line(held, 1, "403", drop_all=True)
    assert await deliveries.finish_post(held, 2, 0, last=True)
    await chat.ask(bot=True)
    look = await deliveries.read_chat(held)
    assert look is not None
    assert look.closed
    if how == "person":
        await chat.ask()
    else:
        assert await deliveries.finish_post(held, 3, 0, last=True, id="x")
    look = await deliveries.read_chat(held)
    assert look is not None
    assert not look.closed
    assert [one.paused for one in await schedules.of_session(chat.session)] == [False]


# Too much


async def test_of_too_many_lines_the_oldest_that_is_not_under_way_becomes_a_dead_letter(
    client: RedisClient, chat: PlatformChat
) -> None:
    """A platform that is away for long costs no memory without end, and nothing goes without a record."""
    deliveries = gateway(client)
    await chat.ask_and_answer("head")
    held = await lease_one(deliveries)
    assert await deliveries.begin_post(held, 1, 0) is not None
    for n in range(OUTBOX_CAP + 2):
        await chat.ask_and_answer(f"line {n}")
    assert await client.command("XLEN", keys.outbox(chat.session)) == OUTBOX_CAP
    assert [(one.reason, one.turn) for one in await letters(client).newest()] == [
        ("outbox_full", 4), ("outbox_full", 3), ("outbox_full", 2),
    ]  # fmt: skip
    assert await deliveries.finish_post(held, 1, 0, last=True, id="x")
    assert texts(await deliveries.read_chat(held))[0] == "line 3"
    await deliveries.requeue(held, 0, unclear=False)
    await lease_one(deliveries)
    assert await client.command("HEXISTS", keys.out(chat.session), "full") == 0


# What is known of a chat


async def test_the_streamed_message_is_known_to_the_next_gateway_until_it_is_a_post(
    client: RedisClient, chat: PlatformChat
) -> None:
    """Another id is another message; when the chat is quiet nothing is left of it."""
    first, second = gateway(client), gateway(client)
    await chat.ask()
    assert await first.save_streamed_message(await lease_one(first), 1, "id 7")
    await chat.time_passes()
    held = await lease_one(second)
    assert held.streamed_message == (1, "id 7")
    await chat.answer("a", "b")
    assert await second.finish_post(held, 1, 0, last=True, id="8")
    assert (await second.read_chat(held) or held).streamed_message == (1, "id 7")
    assert await second.finish_post(held, 2, 0, last=True, id="id 7")
    assert (await second.read_chat(held) or held).streamed_message is None
    await chat.ask()
    assert await second.save_streamed_message(held, 2, "9")
    await chat.answer()
    assert await second.release_quiet(held)
    assert "out:telegram:42" not in await chat.keys()


async def test_a_message_that_was_about_to_be_shown_is_known_by_its_key_to_whoever_comes_next(
    client: RedisClient, chat: PlatformChat
) -> None:
    """It is noted in the step that allows the call, and in no other; when its id is known, or the chat is quiet, it is
    over."""
    first, second, slow = gateway(client), gateway(client), RateKey("bot", per_s=0.01, burst=1)
    await chat.ask()
    held = await lease_one(first)
    assert await first.reserve_call(held, [slow], pending_stream=(1, "key 1")) == 0
    assert await first.reserve_call(held, [slow], pending_stream=(1, "key 2")) > 0, "it may not be made"
    assert await first.reserve_call(held) == 0, "an edit"
    await chat.time_passes()
    held = await lease_one(second)
    assert (held.pending_stream, held.streamed_message) == ((1, "key 1"), None)
    assert await first.reserve_call(held, pending_stream=(1, "late")) == first.lease_s, "the lease is lost"
    assert await second.save_streamed_message(held, 1, "id 7")
    assert (await second.read_chat(held) or held).pending_stream is None
    assert await second.reserve_call(held, pending_stream=(1, "key 3")) == 0
    assert (await second.read_chat(held) or held).pending_stream == (1, "key 3")
    await chat.answer()
    assert await second.release_quiet(held)
    assert "out:telegram:42" not in await chat.keys()


async def test_how_much_of_a_reply_people_saw_is_known_to_the_next_gateway(
    client: RedisClient, chat: PlatformChat
) -> None:
    """It does not edit the message back to a shorter text. A call that may not be made shows nothing."""
    first, slow = gateway(client), RateKey("bot", per_s=0.01, burst=1)
    await chat.ask()
    held = await lease_one(first)
    assert await first.reserve_call(held, [slow], shown=(1, 120)) == 0
    assert await first.reserve_call(held, [slow], shown=(1, 240)) > 0
    assert await first.reserve_call(held) == 0, "an edit that shows no streamed text"
    assert await client.command("PTTL", keys.out(chat.session)) > 0
    await chat.time_passes()
    assert (await lease_one(gateway(client))).shown == (1, 120)


async def test_notes_stay_with_the_chat(client: RedisClient, chat: PlatformChat) -> None:
    """The newest take the place of what was there; none is none."""
    deliveries = gateway(client)
    await chat.ask()
    await deliveries.save_notes(chat.session, {"subject": "Re: héllo", "to": "a@example.org"})
    held = await lease_one(deliveries)
    assert held.notes == {"subject": "Re: héllo", "to": "a@example.org"}
    await chat.answer()
    assert await deliveries.release_quiet(held)
    await deliveries.save_notes(chat.session, {"subject": "b"})
    await chat.ask()
    assert (await lease_one(deliveries)).notes == {"subject": "b"}
    await deliveries.save_notes(chat.session, {})
    assert await client.command("EXISTS", keys.out(chat.session)) == 0


async def test_what_was_delivered_is_known_when_it_comes_back(client: RedisClient) -> None:
    """Platforms whose bots hear themselves: an echo is no person, though the outbox is empty."""
    chat = PlatformChat(client, limits=InboxLimits(bot_turns=1))
    deliveries = gateway(client)
    await chat.ask("a person's own words, long enough")
    await chat.answer("what we said ourselves a moment ago", "and something else that is long enough")
    held = await lease_one(deliveries)
    await deliver(deliveries, held, 1)
    await deliver(deliveries, held, 2)
    await chat.ask("what we said ourselves a moment ago")
    assert await client.command("HGET", keys.session(chat.session), "bots")
    assert 0 < await client.command("PTTL", keys.delivered_text(chat.session)) <= 600_000


async def test_a_session_that_is_erased_is_in_no_outqueue(client: RedisClient, chat: PlatformChat) -> None:
    """And whoever delivers it can write nothing more."""
    deliveries = gateway(client)
    await chat.ask_and_answer("one", "two")
    await deliveries.save_notes(chat.session, {"a": "b"})
    held = await lease_one(deliveries)
    await deliver(deliveries, held, 1)
    await erase(client, chat.session)
    assert await chat.keys() == {"outtoken:telegram", "outboxes"}
    assert await client.command("KEYS", "shoal:{0ax}:*42*") == []
    assert await deliveries.read_chat(held) is None


# Redis away


class Cut(RedisClient):
    """A client that can be away, and whose answers can get lost."""

    away = deaf = False

    async def evaluate(self, script: Script, call: tuple[Value, ...]) -> Any:
        if self.away:
            raise RedisAway("away")
        answer = await super().evaluate(script, call)
        if self.deaf:
            raise RedisAway("no answer")
        return answer


@pytest.fixture
async def cut(redis_url: str) -> AsyncIterator[Cut]:
    made = Cut(redis_url)
    yield made
    await made.close()


@pytest.mark.parametrize("why", ["start", "outage"])
async def test_a_chat_that_lapsed_in_an_outage_is_left_to_its_owner_for_half_a_lease(
    client: RedisClient, chat: PlatformChat, cut: Cut, why: str
) -> None:
    """After a start, and after Redis was away: then counted from when it is back, however long that was. Its owner
    comes back at the same moment."""
    owner, clock = gateway(client), HandClock()
    other = DeliveryQueue(cut, CHANNEL, lease_s=LEASE_S, clock=clock)
    await chat.ask_and_answer("one")
    held = await lease_one(owner)
    if why == "outage":
        clock.at += LEASE_S
        cut.away = True
        with pytest.raises(RedisAway):
            await other.acquire(5)
        cut.away = False
    await chat.time_passes(int(LEASE_S * 1000) + 14_800)
    found, wait_s = await other.acquire(5)
    assert found == []
    assert 0 <= wait_s <= (0.2 if why == "start" else LOOK_S)
    fresh = PlatformChat(client, "43")
    await fresh.ask()
    assert [one.session for one in (await other.acquire(5))[0]] == [fresh.session], "what is nobody's is not left alone"
    await chat.time_passes(1_000)
    if why == "outage":
        assert (await other.acquire(5))[0] == []
        clock.at += LEASE_S / 2
    [owner_lost] = (await other.acquire(5))[0]
    assert owner_lost.owner_lost
    assert await owner.renew([held]) == {chat.session}


async def test_after_the_grace_nothing_is_left_alone(client: RedisClient, chat: PlatformChat) -> None:
    """It is over half a lease after the start."""
    clock = HandClock()
    other = DeliveryQueue(client, CHANNEL, lease_s=LEASE_S, clock=clock)
    await chat.ask_and_answer("one")
    await lease_one(gateway(client))
    await chat.time_passes(int(LEASE_S * 1000) + 1_000)
    assert (await other.acquire(5))[0] == []
    clock.at += LEASE_S / 2
    assert len((await other.acquire(5))[0]) == 1


async def test_chats_that_were_leased_without_a_reply_are_given_back(
    client: RedisClient, chat: PlatformChat, cut: Cut
) -> None:
    """Once Redis is back, at once; what is under way is not touched."""
    deliveries, known = DeliveryQueue(cut, CHANNEL, lease_s=LEASE_S), PlatformChat(client, "43")
    await known.ask_and_answer("known")
    mine = await lease_one(deliveries)
    await chat.ask_and_answer("one")
    cut.deaf = True
    with pytest.raises(RedisAway):
        await deliveries.acquire(5)
    assert await client.command("HLEN", keys.outleases(CHANNEL)) == 2
    cut.deaf = False
    cut.away = True
    with pytest.raises(RedisAway):
        await deliveries.acquire(5)
    cut.away = False
    assert texts(await lease_one(deliveries)) == ["one"]
    assert await deliveries.renew([mine]) == set()


async def test_what_is_kept_of_a_chat_goes_when_it_is_quiet(client: RedisClient) -> None:
    """After much traffic, with troubles: one token and the index of channels, and both have an end."""
    deliveries = gateway(client)
    for n in range(20):
        chat = PlatformChat(client, str(n))
        await chat.ask_and_answer("one", "two")
        held = await lease_one(deliveries)
        assert await deliveries.save_streamed_message(held, 1, "b")
        await deliver(deliveries, held, 1)
        await deliveries.requeue(held, 0, unclear=True)
        held = await lease_one(deliveries)
        await deliver(deliveries, held, 2)
        assert await deliveries.release_quiet(held)
    left = await chat.keys()
    assert left == {"outtoken:telegram", "outboxes"}
    assert all([await client.command("PTTL", f"shoal:{{0ax}}:{name}") > 0 for name in left])
    assert await client.command("KEYS", "shoal:{0ax}:outbox:*") == []
    assert await Outbox(client).read_after(chat.session, after=0) == []


async def test_two_gateways_and_many_chats_share_the_work(client: RedisClient) -> None:
    """Both at once: each chat is one's, and all are delivered."""
    both = gateway(client), gateway(client)
    for n in range(10):
        await PlatformChat(client, str(n)).ask_and_answer("x")
    (first, _), (second, _) = await asyncio.gather(*(one.acquire(5) for one in both))
    assert {one.session for one in first}.isdisjoint(one.session for one in second)
    assert len(first) == len(second) == 5
