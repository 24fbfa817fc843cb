"""What Discord tells is taken, whatever breaks: connections, sessions, gateways, Redis."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator

import pytest

from gateway.channels.discord.channel import SessionStarts
from gateway.channels.discord.cursor import decode_cursor
from gateway.platform.protocol import ChannelBroken, Throttled
from shared.errors import RedisAway, Refused
from tests.fakes.discord import BOT, GUILD, FakeDiscord, iso, snowflake
from tests.fakes.discord_gateway import MESSAGE_CONTENT
from tests.gateway.channels.discord.listening import (
    ALONE,
    CHANNEL,
    OTHER,
    SOON_S,
    THREAD,
    Bot,
    Ledger,
    Memory,
    a_server,
    listening,
    press,
    say,
)
from tests.helpers.wait import eventually


@pytest.fixture
async def server() -> AsyncIterator[FakeDiscord]:
    async with a_server().serving() as made:
        yield made


@pytest.fixture
def inlet() -> Ledger:
    return Ledger()


@pytest.fixture
def cursor() -> Memory:
    return Memory()


async def test_the_next_gateway_takes_the_session_up(server: FakeDiscord, inlet: Ledger, cursor: Memory) -> None:
    """What was said between the two is told to it, also by people who never wrote before."""
    async with listening(server, inlet, cursor):
        await say(server, ALONE, "one")
        await inlet.hears("one")
    await say(server, ALONE, "two")
    await say(server, OTHER, "hello")
    async with listening(server, inlet, cursor):
        await inlet.hears("one", "two", chat=ALONE)
        await inlet.hears("hello", chat=OTHER)
    assert (len(server.gateway.identifies), server.gateway.resumes) == (1, 1)
    assert server.reads == []


async def test_events_that_a_gateway_had_not_accepted_when_it_died_are_replayed(
    server: FakeDiscord, inlet: Ledger, cursor: Memory
) -> None:
    """Also when later messages of other chats were taken."""
    inlet.closed[ALONE] = asyncio.Event()
    async with listening(server, inlet, cursor) as bot:
        await say(server, ALONE, "slow")
        await say(server, OTHER, "quick")
        await inlet.hears("quick")
        await bot.die()
    assert server.gateway.open == 0
    inlet.closed[ALONE].set()
    async with listening(server, inlet, cursor):
        await inlet.hears("slow", chat=ALONE)
    assert inlet.texts() == ["quick", "slow"]
    assert server.gateway.resumes == 1


@pytest.mark.parametrize("how", ["cut", "asked"])
async def test_a_connection_that_breaks_is_made_again(
    server: FakeDiscord, inlet: Ledger, cursor: Memory, how: str
) -> None:
    """In the same session; nothing is lost, nothing is twice, and the order is kept."""
    async with listening(server, inlet, cursor):
        await say(server, ALONE, "one")
        await inlet.hears("one")
        await (server.gateway.cut() if how == "cut" else server.gateway.ask_to_reconnect())
        await say(server, ALONE, "two")
        await say(server, ALONE, "three")
        await inlet.hears("one", "two", "three")
        await eventually(lambda: server.gateway.open, within_s=SOON_S)
    assert inlet.tries == 3
    assert (len(server.gateway.identifies), server.gateway.resumes) == (1, 1)


async def test_a_session_whose_address_is_dead_is_resumed_at_the_front_door(
    server: FakeDiscord, inlet: Ledger, cursor: Memory
) -> None:
    """The machine that had it may be gone."""
    server.gateway.resume_address = "ws://127.0.0.1:9/"
    async with listening(server, inlet, cursor):
        await say(server, ALONE, "one")
        await inlet.hears("one")
    await say(server, ALONE, "two")
    async with listening(server, inlet, cursor):
        await inlet.hears("one", "two")
    assert (len(server.gateway.identifies), server.gateway.resumes) == (1, 1)


async def test_after_a_long_break_the_history_of_known_chats_is_read_first(
    server: FakeDiscord, inlet: Ledger, cursor: Memory
) -> None:
    """In order, before what is said now; what was heard before is not heard again, nor what was said to others."""
    async with listening(server, inlet, cursor):
        await say(server, ALONE, "one")
        await say(server, THREAD, "in a thread")
        await inlet.hears("one", chat=ALONE)
        await inlet.hears("in a thread", chat=THREAD)
    await server.gateway.forget()
    for number in range(130):
        await say(server, ALONE, f"missed {number}")
    await say(server, THREAD, "among us", to_us=False)
    await say(server, THREAD, "to you")
    inlet.closed[ALONE] = asyncio.Event()
    async with listening(server, inlet, cursor):
        await inlet.hears("in a thread", "to you", chat=THREAD)
        await say(server, ALONE, "now")
        inlet.closed[ALONE].set()
        await inlet.hears("one", *(f"missed {number}" for number in range(130)), "now", chat=ALONE)
    assert len(server.gateway.identifies) == 2
    [late] = [one for one in inlet.received if one.message.content == "to you"]
    assert (late.group, late.message.chat_id, late.message.thread) == (True, CHANNEL, THREAD)


async def test_a_session_that_is_over_begins_anew_and_history_covers_the_gap(
    server: FakeDiscord, inlet: Ledger, cursor: Memory
) -> None:
    """In the same process, too."""
    async with listening(server, inlet, cursor):
        await say(server, ALONE, "one")
        await inlet.hears("one")
        await server.gateway.forget()
        await say(server, ALONE, "two")
        await inlet.hears("one", "two")


async def test_who_dies_while_it_catches_up_leaves_it_to_the_next(
    server: FakeDiscord, inlet: Ledger, cursor: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The session that it began is not taken up: what was before that would be lost."""
    monkeypatch.setattr("gateway.channels.discord.event_queue.FIRST_S", 0.05)
    monkeypatch.setattr("gateway.channels.discord.channel.SAVE_EVERY_S", 0.1)
    async with listening(server, inlet, cursor):
        await say(server, ALONE, "one")
        await inlet.hears("one")
    await server.gateway.forget()
    await say(server, ALONE, "two")
    inlet.closed[ALONE] = asyncio.Event()
    bot = Bot(server, inlet, cursor)
    await bot.start()
    await eventually(lambda: inlet.tries >= 2, within_s=SOON_S)
    await bot.die()
    inlet.closed[ALONE].set()
    async with listening(server, inlet, cursor):
        await inlet.hears("one", "two")
        await eventually(lambda: decode_cursor(cursor.value).readings[0].session, within_s=SOON_S)


async def test_history_that_is_too_old_or_not_wanted_is_left(
    server: FakeDiscord, inlet: Ledger, cursor: Memory
) -> None:
    """Nobody waits for an answer any more."""
    async with listening(server, inlet, cursor):
        old = snowflake(int(time.time() * 1000) - 7_200_000)
        await say(server, ALONE, "one", id=old)
        await inlet.hears("one")
    await server.gateway.forget()
    await say(server, ALONE, "an hour ago", id=snowflake(int(time.time() * 1000) - 3_600_000))
    await say(server, ALONE, "just now")
    async with listening(server, inlet, cursor, history_s=600):
        await inlet.hears("one", "just now")


async def test_a_chat_whose_history_may_not_be_read_is_passed_over(
    server: FakeDiscord, inlet: Ledger, cursor: Memory
) -> None:
    """The others are read."""
    async with listening(server, inlet, cursor):
        await say(server, ALONE, "one")
        await say(server, OTHER, "one")
        await eventually(lambda: len(inlet.received) == 2, within_s=SOON_S)
    await server.gateway.forget()
    await say(server, OTHER, "two")
    del server.channels[ALONE]
    async with listening(server, inlet, cursor):
        await inlet.hears("one", "two", chat=OTHER)


async def test_an_event_that_cannot_be_accepted_waits_and_no_other_chat(
    server: FakeDiscord, inlet: Ledger, cursor: Memory
) -> None:
    """Redis is away, the fleet has too much to do, our own code breaks: it is tried again, in order."""
    inlet.faults[ALONE] = [RedisAway("away"), Refused("overloaded", "later", 0.1), KeyError("bug")]
    async with listening(server, inlet, cursor):
        await say(server, ALONE, "one")
        await say(server, ALONE, "two")
        await say(server, OTHER, "hello")
        await inlet.hears("one", "two", chat=ALONE)
        await inlet.hears("hello", chat=OTHER)


async def test_who_ends_with_something_untaken_leaves_it_to_the_next(
    server: FakeDiscord, inlet: Ledger, cursor: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a moment, and what was taken is known."""
    monkeypatch.setattr("gateway.channels.discord.channel.FINISH_S", 0.2)
    inlet.closed[ALONE] = asyncio.Event()
    async with listening(server, inlet, cursor) as bot:
        await say(server, OTHER, "before")
        await say(server, ALONE, "slow")
        await say(server, OTHER, "behind")
        await inlet.hears("before", "behind", chat=OTHER)
        await asyncio.wait_for(bot.end(), SOON_S)  # what is under way there would never end
    inlet.closed[ALONE].set()
    tries = inlet.tries
    async with listening(server, inlet, cursor):
        await inlet.hears("slow", chat=ALONE)
        await say(server, OTHER, "next")
        await inlet.hears("before", "behind", "next", chat=OTHER)
    assert inlet.tries == tries + 3  # "before" is not told again


async def test_a_press_is_answered_at_once(server: FakeDiscord, inlet: Ledger, cursor: Memory) -> None:
    """Discord waits three seconds; the chat may have something else to do. Told again, it is answered once."""
    inlet.closed[ALONE] = asyncio.Event()
    async with listening(server, inlet, cursor):
        await say(server, ALONE, "slow")
        for _ in range(2):
            await server.gateway.tell("INTERACTION_CREATE", press(ALONE, "900000000000000001"))
        await eventually(lambda: server.answered == ["900000000000000001"], within_s=SOON_S)
        assert inlet.texts() == []
        inlet.closed[ALONE].set()
        await inlet.hears("slow", "Tea")


async def test_edits_and_deletions_name_their_message(server: FakeDiscord, inlet: Ledger, cursor: Memory) -> None:
    """In a thread, too; those of channels in which nobody was heard are nobody's concern."""
    async with listening(server, inlet, cursor):
        gateway_event = await say(server, THREAD, "one")
        await inlet.hears("one")
        edited = {**server.as_event(gateway_event), "content": "two", "edited_timestamp": iso(1_700_000_000_000)}
        await server.gateway.tell("MESSAGE_UPDATE", edited)
        await inlet.hears("one", "two")
        assert inlet.received[1].replaces == gateway_event["id"]
        await server.gateway.tell("MESSAGE_DELETE", {"id": "5", "channel_id": CHANNEL, "guild_id": GUILD})
        await server.gateway.tell("MESSAGE_DELETE_BULK", {"ids": ["6", "7"], "channel_id": THREAD, "guild_id": GUILD})
        await server.gateway.tell("MESSAGE_DELETE", {"id": "8", "channel_id": ALONE})
        await eventually(lambda: len(inlet.gone) == 3, within_s=SOON_S)
    assert [(one.chat_id, one.thread, one.id) for one in inlet.gone if one.thread] == [
        (CHANNEL, THREAD, "6"),
        (CHANNEL, THREAD, "7"),
    ]
    assert [one.id for one in inlet.gone if one.chat_id == ALONE] == ["8"]


async def test_only_messages_that_may_count_cost_a_look_up(server: FakeDiscord, inlet: Ledger, cursor: Memory) -> None:
    """What people say to each other on a server does not, nor what the bot or others say; an answer is remembered."""
    async with listening(server, inlet, cursor):
        await say(server, THREAD, "among us", to_us=False)
        await server.gateway.tell("MESSAGE_CREATE", server.as_event(server.message(THREAD, dict(BOT), "mine")))
        await eventually(lambda: inlet.tries == 2, within_s=SOON_S)
        assert server.reads == []
        await say(server, THREAD, "one")
        await say(server, THREAD, "two")
        await inlet.hears("one", "two", chat=THREAD)
    async with listening(server, inlet, cursor):
        await say(server, THREAD, "three")
        await inlet.hears("one", "two", "three", chat=THREAD)
    assert server.reads == [THREAD]


async def test_a_strange_event_stands_in_nobodys_way(server: FakeDiscord, inlet: Ledger, cursor: Memory) -> None:
    """It is passed over."""
    async with listening(server, inlet, cursor):
        await server.gateway.tell("MESSAGE_CREATE", {"id": {}, "channel_id": 5})
        await server.gateway.tell("SOMETHING_NEW", {"id": "x"})
        await say(server, ALONE, "one")
        await inlet.hears("one")


async def test_without_the_intent_only_mentions_of_the_bot_are_received(
    server: FakeDiscord, inlet: Ledger, cursor: Memory
) -> None:
    """Discord leaves the text of everything else away, and closes the door on who asks for it without leave."""
    server.gateway.allowed_intents = ~MESSAGE_CONTENT
    bot = Bot(server, inlet, cursor)
    await bot.start()
    with pytest.raises(ChannelBroken, match=r"Message Content Intent.*channels\.discord\.message_content"):
        await bot.over()
    async with listening(server, inlet, cursor, message_content=False):
        await say(server, CHANNEL, "among us", to_us=False)
        await say(server, CHANNEL, "one")
        await inlet.hears("one")
    assert inlet.tries == 1


async def test_a_token_that_the_gateway_refuses_says_which_setting(
    server: FakeDiscord, inlet: Ledger, cursor: Memory
) -> None:
    """It was reset between two calls."""
    server.gateway.token = "another"
    bot = Bot(server, inlet, cursor)
    await bot.start()
    with pytest.raises(ChannelBroken, match=r"channels\.discord\.token"):
        await bot.over()


async def test_who_has_begun_too_many_sessions_waits(server: FakeDiscord, inlet: Ledger, cursor: Memory) -> None:
    """Discord would take the bot's token away."""
    server.gateway.left = 0
    bot = Bot(server, inlet, cursor)
    await bot.start()
    with pytest.raises(Throttled) as caught:
        await bot.over()
    assert caught.value.retry_after_s == 14_400
    assert server.gateway.identifies == []


async def test_sessions_are_begun_one_after_the_other(server: FakeDiscord, inlet: Ledger, cursor: Memory) -> None:
    """As many at once as Discord says."""
    bot = Bot(server, inlet, cursor)
    begins, loop = SessionStarts(bot.api, every_s=0.2), asyncio.get_running_loop()
    began = loop.time()
    await asyncio.gather(*(begins.wait_for_start(shard) for shard in range(3)))
    assert loop.time() - began >= 0.39
    await bot.api.close()


async def test_every_shard_is_read_and_resumed(server: FakeDiscord, inlet: Ledger, cursor: Memory) -> None:
    """A server is on one of them; chats of two are on the first."""
    server.gateway.at_once = 2
    servers = [str(number << 22) for number in (4, 5)]
    channels = ["600000000000000001", "600000000000000002"]
    for channel, guild in zip(channels, servers, strict=True):
        server.channels[channel] = {"id": channel, "type": 0, "guild_id": guild}
    async with listening(server, inlet, cursor, shards=2):
        for channel in (*channels, ALONE):
            await say(server, channel, "one")
        for channel in (*channels, ALONE):
            await inlet.hears("one", chat=channel)
    assert sorted(shard for _, shard in server.gateway.identifies) == [0, 1]
    for channel in (*channels, ALONE):
        await say(server, channel, "two")
    async with listening(server, inlet, cursor, shards=2):
        for channel in (*channels, ALONE):
            await inlet.hears("one", "two", chat=channel)
    assert server.gateway.resumes == 2


async def test_another_number_of_shards_begins_anew_and_reads_history(
    server: FakeDiscord, inlet: Ledger, cursor: Memory
) -> None:
    """Sessions of another number hear other servers."""
    async with listening(server, inlet, cursor):
        await say(server, ALONE, "one")
        await inlet.hears("one")
    await say(server, ALONE, "two")
    server.gateway.at_once = 2
    async with listening(server, inlet, cursor, shards=2):
        await inlet.hears("one", "two")
    assert server.gateway.resumes == 0


async def test_a_broken_token_found_while_an_event_is_accepted_ends_the_listening(
    server: FakeDiscord, inlet: Ledger, cursor: Memory
) -> None:
    """The event is not taken: it comes again when the token is mended."""
    async with listening(server, inlet, cursor) as bot:
        server.script("401/0", "room", THREAD, 1, 0)
        await say(server, THREAD, "one")
        with pytest.raises(ChannelBroken):
            await bot.over()
    async with listening(server, inlet, cursor):
        await inlet.hears("one")
