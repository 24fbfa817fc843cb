"""The way out of a chat on a platform, on a real Valkey: who delivers it, in which order, and how far it is."""

from __future__ import annotations

import re

import msgspec
import pytest

from shared.errors import Refused
from shared.ids import nonce
from shared.messages.live import TurnEvent
from shared.messages.schedule import BACKGROUND
from shared.store import keys
from shared.store.client.pubsub import pubsub
from shared.store.client.redis_client import RedisClient, server_ms
from shared.store.client.scripts import load
from shared.store.delivery.deliveries import (
    ENTRIES,
    LOOK_S,
    OUTBOX_CAP,
    READ_CHANNELS,
    Cleared,
    DeliveryQueue,
    Wait,
)
from shared.store.turns.inbox import Inbox
from shared.store.turns.queue import LeaseQueue
from shared.store.turns.turn_writes import Turns
from tests.helpers.build import message, reply, say
from tests.helpers.platform_chat import CHANNEL, LEASE_S, PlatformChat, deliver, gateway, lease_one, texts


@pytest.fixture
def chat(client: RedisClient) -> PlatformChat:
    return PlatformChat(client)


# In and out of the outqueue


async def test_a_message_makes_its_chat_due_so_that_the_turn_is_attended(
    client: RedisClient, chat: PlatformChat
) -> None:
    """Before there is anything to deliver: somebody says "typing" and streams."""
    await chat.ask()
    held = await lease_one(gateway(client))
    assert (held.session, held.pending, held.running) == (chat.session, (), 1)
    assert not held.owner_lost
    assert not held.background


async def test_a_line_makes_its_chat_due_whoever_wrote_it(client: RedisClient, chat: PlatformChat) -> None:
    """A tick asks for no attention; what came of it is delivered."""
    tick = msgspec.structs.replace(message(chat="42", channel=CHANNEL), metadata={BACKGROUND: "1"})
    deliveries = gateway(client)
    await Inbox(client).ingest(tick, internal=True)
    held = await lease_one(deliveries)
    assert (held.running, held.background) == (1, True)
    assert await deliveries.release_quiet(held, though_running=True)
    await chat.answer("news")
    held = await lease_one(deliveries)
    assert (texts(held), held.running, held.background) == (["news"], None, False)


@pytest.mark.parametrize("channel", sorted(READ_CHANNELS - {"system"}))
async def test_chats_that_people_read_themselves_are_in_no_outqueue(client: RedisClient, channel: str) -> None:
    """Their log stays where it is."""
    await Inbox(client).ingest(message(channel=channel))
    assert await Inbox(client).notify_refusal(message(channel=channel), Refused("sender_limit", "slow down", 1))
    assert await client.command("KEYS", "shoal:{0ax}:out*") == [keys.outbox(f"{channel}:owner/a").encode()]


async def test_a_web_chat_pays_nothing_for_deliveries(client: RedisClient) -> None:
    """No command for them: 26 for a message that is shown, 18 for its answer, scripts apart. One of
    each looks for a feed, which no page follows here, and one of the answer for notices, which no
    endpoint of a webhook is there for."""
    counts = []
    for _ in range(2):
        # Written once a second, which may end at any moment.
        await client.command("HSET", keys.CLOCKS, keys.queue("turns"), server_ms(await client.command("TIME")))
        await client.command("CONFIG", "RESETSTAT")
        await say(Inbox(client))
        counts.append(await commands(client))
        [claim] = await LeaseQueue(client, "turns", owner=nonce(), lease_s=60).acquire(1)
        assert claim.turn is not None
        n = claim.turn.n
        await client.command("CONFIG", "RESETSTAT")
        await Turns(client).commit(claim, history=[], lines=[reply("x", n)], event=TurnEvent(n, "done"))
        counts.append(await commands(client))
    assert counts[2:] == [26, 18]


async def commands(client: RedisClient) -> int:
    """How many were called since the counters were set to 0, but for those that look at them and scripts."""
    stats = (await client.command("INFO", "commandstats")).decode()
    calls = {line.split(":")[0]: int(line.split("calls=")[1].split(",")[0]) for line in stats.splitlines()[1:]}
    with_gaps = ("cmdstat_config|resetstat", "cmdstat_evalsha", "cmdstat_eval", "cmdstat_info")
    return sum(count for name, count in calls.items() if name not in with_gaps)


async def test_waiting_gateways_hear_once_that_a_chat_is_due(client: RedisClient, chat: PlatformChat) -> None:
    """By pub/sub, on the channel that `news` names; what is in the queue already is not told again."""
    deliveries = gateway(client)
    async with pubsub(client) as news:
        news.subscribe(deliveries.news)
        assert await news.next(5) is not None
        await chat.ask()
        await chat.answer("one", "two")
        await PlatformChat(client, "43").ask()
        announced = [await news.next(5), await news.next(5)]
    assert [one.data.decode() for one in announced if one] == [chat.session, "telegram:43"]


async def test_a_gateway_leaves_a_chat_when_all_is_delivered_and_no_turn_is_under_way(
    client: RedisClient, chat: PlatformChat
) -> None:
    """Both are asked in the script: what came meanwhile is not left behind."""
    deliveries = gateway(client)
    await chat.ask()
    held = await lease_one(deliveries)
    assert not await deliveries.release_quiet(held)
    await chat.answer("hi")
    assert not await deliveries.release_quiet(held)
    await deliver(deliveries, held, 1)
    assert await deliveries.release_quiet(held)
    assert await chat.keys() == {"outtoken:telegram", "outboxes"}
    assert await deliveries.acquire(5) == ([], LOOK_S)


async def test_a_chat_whose_turn_takes_long_can_be_left_and_comes_back_with_its_next_line(
    client: RedisClient, chat: PlatformChat
) -> None:
    """A gateway with too much to do keeps its places for chats that have something to say; the bubble stays known."""
    deliveries = gateway(client)
    await chat.ask()
    held = await lease_one(deliveries)
    assert await deliveries.save_streamed_message(held, 1, "b1")
    assert await deliveries.release_quiet(held, though_running=True)
    assert await deliveries.acquire(5) == ([], LOOK_S)
    await chat.answer("hi")
    held = await lease_one(deliveries)
    assert (texts(held), held.streamed_message) == (["hi"], (1, "b1"))
    assert not await deliveries.release_quiet(held, though_running=True)


async def test_a_chat_with_nothing_to_do_is_removed_and_not_leased(client: RedisClient, chat: PlatformChat) -> None:
    """Its turn was ended by /new, say, while nobody attended it."""
    await chat.ask()
    await client.command("DEL", keys.inbox(chat.session))
    await client.command("HSET", keys.out(chat.session), "tries", 1, "bubble", "1 b")
    assert await gateway(client).acquire(5) == ([], LOOK_S)
    assert await chat.keys() == {"outboxes"}


# In order, each post once


async def test_lines_are_delivered_in_order_and_leave_the_outbox(client: RedisClient, chat: PlatformChat) -> None:
    """Some at a time; a look shows what is behind them."""
    deliveries = gateway(client)
    await chat.ask_and_answer(*(f"line {n}" for n in range(ENTRIES + 2)))
    held = await lease_one(deliveries)
    assert texts(held) == [f"line {n}" for n in range(ENTRIES)]
    assert [entry.seq for entry in held.pending] == list(range(1, ENTRIES + 1))
    for entry in held.pending:
        await deliver(deliveries, held, entry.seq)
    assert texts(await deliveries.read_chat(held)) == [f"line {ENTRIES}", f"line {ENTRIES + 1}"]
    assert await client.command("XLEN", keys.outbox(chat.session)) == 2


async def test_a_line_of_several_posts_is_delivered_with_the_last(client: RedisClient, chat: PlatformChat) -> None:
    """How many are there is known to whoever comes next; what was noted of one line is not taken for the next."""
    deliveries = gateway(client)
    await chat.ask_and_answer("long", "second")
    held = await lease_one(deliveries)
    for part in (0, 1):
        assert await deliveries.begin_post(held, 1, part) == Cleared(unclear=False)
        assert await deliveries.finish_post(held, 1, part, last=False, id=f"p{part}")
    look = await deliveries.read_chat(held)
    assert look is not None
    assert (texts(look), look.part, look.unclear) == (["long", "second"], 2, False)
    await deliver(deliveries, held, 1, part=2)
    look = await deliveries.read_chat(held)
    assert look is not None
    assert (texts(look), look.part) == (["second"], 0)


async def test_a_line_with_nothing_to_show_ends_without_a_post(client: RedisClient, chat: PlatformChat) -> None:
    """And without being about to be sent."""
    deliveries = gateway(client)
    await chat.ask_and_answer("", "second")
    held = await lease_one(deliveries)
    assert await deliveries.finish_post(held, 1, 0, last=True)
    assert texts(await deliveries.read_chat(held)) == ["second"]
    assert await client.command("EXISTS", keys.delivered_text(chat.session)) == 0


async def test_every_call_may_be_made_again_when_its_answer_was_lost(client: RedisClient, chat: PlatformChat) -> None:
    """The same answer, and nothing changes twice."""
    deliveries = gateway(client)
    await chat.ask_and_answer("one", "two")
    held = await lease_one(deliveries)
    for _ in range(2):
        assert await deliveries.begin_post(held, 1, 0) == Cleared(unclear=False)
    for _ in range(2):
        assert await deliveries.finish_post(held, 1, 0, last=False, id="a")
    for _ in range(2):
        assert await deliveries.finish_post(held, 1, 1, last=True, id="b")
    look = await deliveries.read_chat(held)
    assert look is not None
    assert (texts(look), look.part) == (["two"], 0)
    for _ in range(2):
        assert await deliveries.give_up_line(held, 2, "too long")
    assert await client.command("XLEN", keys.DEAD) == 1
    assert not (await deliveries.read_chat(held) or look).pending
    for _ in range(2):
        assert await deliveries.release_quiet(held)


@pytest.mark.parametrize("write", ["sending", "sent", "refused"])
async def test_whoever_remembers_what_the_server_lost_lets_go(
    client: RedisClient, chat: PlatformChat, write: str
) -> None:
    """A lost tail set the chat back: the next gateway begins with what the server knows, at once."""
    deliveries = gateway(client)
    await chat.ask_and_answer("one", "two")
    held = await lease_one(deliveries)
    if write == "sending":
        assert await deliveries.begin_post(held, 2, 0) is None
    elif write == "sent":
        assert not await deliveries.finish_post(held, 2, 0, last=True, id="x")
    else:
        assert not await deliveries.give_up_line(held, 2, "too long")
    assert texts(await lease_one(deliveries)) == ["one", "two"]


async def test_whoever_is_further_than_the_server_with_a_line_lets_go(client: RedisClient, chat: PlatformChat) -> None:
    """The posts before were noted, and the note is lost."""
    deliveries = gateway(client)
    await chat.ask_and_answer("one")
    assert await deliveries.begin_post(await lease_one(deliveries), 1, 1) is None
    assert not await deliveries.finish_post(await lease_one(deliveries), 1, 1, last=True, id="x")
    assert texts(await lease_one(deliveries)) == ["one"]


# The fence


async def test_a_lapsed_chat_changes_owner_and_the_first_one_can_write_nothing_more(
    client: RedisClient, chat: PlatformChat
) -> None:
    """Every write is refused and changes nothing; the same owner with an older token is no better."""
    first, second = gateway(client), gateway(client)
    await chat.ask_and_answer("one", "two")
    old = await lease_one(first)
    assert await second.acquire(5) == ([], LOOK_S)
    await chat.time_passes()
    new = await lease_one(second)
    assert new.owner_lost
    assert int(new.token) > int(old.token)
    mine = DeliveryQueue(client, CHANNEL, lease_s=LEASE_S)
    mine.owner = second.owner
    for gone, held in ((first, old), (mine, old), (first, new)):
        before = await everything(client)
        assert await gone.renew([held]) == {chat.session}
        assert await gone.read_chat(held) is None
        assert await gone.begin_post(held, 1, 0) is None
        assert not await gone.finish_post(held, 1, 0, last=True, id="x")
        assert not await gone.finish_post(held, 1, 0, last=False, id="x")
        assert not await gone.give_up_line(held, 1, "too long")
        assert not await gone.give_up_line(held, 1, "blocked", drop_all=True)
        assert not await gone.save_streamed_message(held, 1, "x")
        assert await gone.reserve_call(held) == LEASE_S
        assert await gone.release_quiet(held)
        await gone.requeue(held, 5, unclear=False)
        assert await everything(client) == before
    assert await second.renew([new]) == set()


async def everything(client: RedisClient) -> dict[bytes, bytes]:
    names = sorted(await client.command("KEYS", "*"))
    return dict(zip(names, await client.pipeline([("DUMP", name) for name in names]), strict=True))


async def test_many_leases_are_renewed_in_one_call(client: RedisClient) -> None:
    """Those that are lost are named; the others have their whole time again."""
    deliveries, other = gateway(client), gateway(client)
    chats = [PlatformChat(client, str(n)) for n in range(3)]
    for chat in chats:
        await chat.ask()
    held, _ = await deliveries.acquire(5)
    await chats[1].time_passes()
    await other.acquire(5)
    await chats[2].time_passes(20_000)
    assert await deliveries.renew(held) == {chats[1].session}
    assert await deliveries.renew([]) == set()
    seconds, micros = await client.command("TIME")
    until = await client.command("ZMSCORE", keys.outqueue(CHANNEL), chats[0].session, chats[2].session)
    now_ms = int(seconds) * 1000 + int(micros) // 1000
    assert all(float(one) > now_ms + LEASE_S * 500 for one in until)


@pytest.mark.parametrize("write", ["sending", "throttled", "sent", "sent before", "refused"])
async def test_what_is_written_on_the_way_keeps_the_lease(client: RedisClient, chat: PlatformChat, write: str) -> None:
    """A chat with much to say needs no renewals."""
    deliveries = gateway(client)
    await chat.ask_and_answer("one", "two", "three")
    held = await lease_one(deliveries)
    await deliver(deliveries, held, 1)
    if write == "throttled":
        await deliveries.pause(60)
    await chat.time_passes(int(LEASE_S * 900))
    if write in ("sending", "throttled"):
        assert isinstance(await deliveries.begin_post(held, 2, 0), Wait if write == "throttled" else Cleared)
    elif write in ("sent", "sent before"):
        assert await deliveries.finish_post(held, 2 if write == "sent" else 1, 0, last=True, id="x")
    else:
        assert await deliveries.give_up_line(held, 2, "too long")
    await chat.time_passes(int(LEASE_S * 500))
    assert await gateway(client).acquire(5) != ([], 0.0)
    assert (await gateway(client).acquire(5))[0] == []


async def test_a_limited_lease_gets_the_chats_that_wait_longest(client: RedisClient) -> None:
    """And it is said how soon another one may be taken: at once."""
    chats = [PlatformChat(client, str(n)) for n in range(4)]
    for n, chat in enumerate(chats):
        await chat.ask()
        await chat.time_passes(1000 * n)
    held, wait_s = await gateway(client).acquire(2)
    assert ([one.session for one in held], wait_s) == ([chats[3].session, chats[2].session], 0.0)


async def test_a_chat_with_broken_keys_stands_in_nobodys_way(client: RedisClient, chat: PlatformChat) -> None:
    """It is looked at again after a minute."""
    deliveries, broken = gateway(client), PlatformChat(client, "broken")
    await broken.ask()
    await client.command("SET", keys.outbox(broken.session), "no stream")
    await chat.ask()
    await client.command("HSET", keys.outleases(CHANNEL), broken.session, "somebody:1")
    assert (await lease_one(deliveries)).session == chat.session
    assert await client.command("HKEYS", keys.outleases(CHANNEL)) == [chat.session.encode()]
    before, after = await client.command("ZMSCORE", keys.outqueue(CHANNEL), chat.session, broken.session)
    assert 25_000 < float(after) - float(before) <= 30_000, "a minute, and the lease of the other one"
    await client.command("DEL", keys.outbox(broken.session))
    await broken.time_passes()
    assert (await lease_one(deliveries)).session == broken.session


def test_the_scripts_know_the_same_channels_and_the_same_cap() -> None:
    """They cannot import them."""
    lib = load("turns/ingest").source
    [channels] = re.findall(r"^local READ_CHANNELS = \{(.*)\}$", lib, re.MULTILINE)
    assert {one.partition("=")[0].strip() for one in channels.split(",")} == READ_CHANNELS
    assert f"local OUTBOX_CAP = {OUTBOX_CAP}\n" in lib


async def test_a_name_that_needs_quoting_is_one_channel_for_both_sides(client: RedisClient) -> None:
    """Sessions have it quoted."""
    await Inbox(client).ingest(message(channel="my chat:s"))
    deliveries = DeliveryQueue(client, "my chat:s", lease_s=LEASE_S)
    held, _ = await deliveries.acquire(1)
    assert [one.session for one in held] == ["my%20chat%3As:owner/a"]
