"""What people write arrives once, in order, and only from those who may."""

from __future__ import annotations

import asyncio

import pytest

from shared.embedded import EmbeddedValkey
from shared.media.reference import read_reference
from tests.contracts.channels.bench import PersonAction
from tests.contracts.channels.echo import Turn
from tests.contracts.channels.stage import Stage, text_file

CHATS = 6


async def test_a_message_is_answered(played: Stage) -> None:
    """The whole way: platform, gateway, turn, gateway, platform. Nothing of it is left in the queue of deliveries."""
    chat = played.bench.chat(0)
    await played.say(chat, "hello")
    await played.sees(chat, "echo: hello")
    [received] = played.worker.received
    assert (received.session, received.chat_id) == (played.bench.session(chat), chat)
    await played.quiet()


async def test_a_message_that_is_delivered_twice_is_one_turn(played: Stage) -> None:
    """Every platform delivers again: at once, while the turn runs, and long after it was answered."""
    chat = played.bench.chat(0)
    action = played.message(chat, "hello")
    await played.tell(action)
    await played.tell(action)
    await played.sees(chat, "echo: hello")
    await played.tell(action)
    await played.say(chat, "bye")
    await played.sees(chat, "echo: hello", "echo: bye")
    assert played.worker.texts(played.bench.session(chat)) == ["hello", "bye"]


async def test_a_chat_is_answered_in_order(played: Stage) -> None:
    """However fast a person writes."""
    chat = played.bench.chat(0)
    for number in range(4):
        await played.say(chat, f"message {number}")
    await played.sees(chat, *(f"echo: message {number}" for number in range(4)))


async def test_chats_do_not_meet(played: Stage) -> None:
    """Many people at once, each in their own chat."""
    chats = [played.bench.chat(number) for number in range(CHATS)]
    for word in ("one", "two"):
        await asyncio.gather(*(played.say(chat, f"{word} of {chat}") for chat in chats))
    for chat in chats:
        await played.sees(chat, f"echo: one of {chat}", f"echo: two of {chat}")


@pytest.mark.needs("bot")
async def test_other_bots_are_not_answered(played: Stage) -> None:
    """Two of them would talk for ever."""
    await played.say(played.bench.chat(1), "I am a bot", by="bot")
    await _only_hello_is_received(played)


@pytest.mark.needs("self")
async def test_our_own_words_are_not_answered(played: Stage) -> None:
    """Some platforms tell a bot what it said."""
    await played.say(played.bench.chat(1), "I said this myself", by="self")
    await _only_hello_is_received(played)


async def test_strangers_are_not_answered(played: Stage) -> None:
    """Who is not in `allow_from` gets no turn."""
    await played.say(played.bench.chat(1), "let me in", by="stranger")
    await _only_hello_is_received(played)


async def _only_hello_is_received(played: Stage) -> None:
    chat = played.bench.chat(0)
    await played.say(chat, "hello")
    await played.sees(chat, "echo: hello")
    assert [message.content for message in played.worker.received] == ["hello"]


@pytest.mark.needs("group")
async def test_in_a_group_only_messages_addressed_to_us_are_answered(played: Stage) -> None:
    """People talk to each other there."""
    group = played.bench.chat(0, group=True)
    await played.say(group, "hi everybody", group=True, addressed=False)
    await played.say(group, "what time is it?", group=True)
    await played.until(lambda: played.texts(group), "an answer in the group")
    assert len(played.worker.received) == 1
    assert "what time is it?" in played.worker.received[0].content
    assert played.worker.received[0].metadata["group"] == "1"


@pytest.mark.needs("edit")
async def test_a_message_that_is_edited_in_time_is_answered_in_its_new_form(played: Stage) -> None:
    """Before its turn has begun, the old words are as if never said."""
    chat = played.bench.chat(0)
    go = await _busy(played, chat)
    action = await played.say(chat, "old words")
    await played.tell(PersonAction(chat=chat, id=action.id, text="new words", does="edit"))
    await _take_in(played)
    go.set()
    await played.sees(chat, "echo: busy", "echo: new words")
    assert played.worker.texts(played.bench.session(chat)) == ["busy", "new words"]


@pytest.mark.needs("delete")
async def test_a_message_that_is_deleted_in_time_is_not_answered(played: Stage) -> None:
    """Before its turn has begun."""
    chat = played.bench.chat(0)
    go = await _busy(played, chat)
    action = await played.say(chat, "never mind")
    await played.tell(PersonAction(chat=chat, id=action.id, does="delete"))
    await played.say(chat, "this one")
    await _take_in(played)
    go.set()
    await played.sees(chat, "echo: busy", "echo: this one")
    assert played.worker.texts(played.bench.session(chat)) == ["busy", "this one"]


async def _busy(played: Stage, chat: str) -> asyncio.Event:
    """A turn of the chat that lasts until the event is set."""
    go = asyncio.Event()

    async def wait(turn: Turn) -> str:
        await go.wait()
        return "echo: busy"

    played.worker.scripts["busy"] = wait
    await played.say(chat, "busy")
    await played.until(lambda: played.worker.received, "the busy turn")
    return go


async def _take_in(played: Stage) -> None:
    """Wait until all that was told so far is taken: events come in order, so one that is answered is behind them."""
    chat = played.bench.chat(5)
    await played.say(chat, "and you?")
    await played.sees(chat, "echo: and you?")


@pytest.mark.needs("files")
async def test_a_file_comes_with_its_message(played: Stage) -> None:
    """Fetched, looked at, kept; the message names it."""
    chat, file = played.bench.chat(0), text_file()
    await played.say(chat, "read this", files=(file,))
    await played.sees(chat, "echo: read this")
    [received] = played.worker.received
    [reference] = received.media
    ref = read_reference(reference)
    assert ref.name == file.name
    assert played.kept(chat, ref) == file.data


async def test_nothing_is_lost_while_redis_is_away(played: Stage, valkey: EmbeddedValkey) -> None:
    """The platform is not told "got it", so it tells the message again."""
    chat = played.bench.chat(0)
    valkey.kill()
    telling = asyncio.create_task(played.say(chat, "hello"))
    await asyncio.wait({telling}, timeout=1.0)
    valkey.start()
    await telling
    await played.sees(chat, "echo: hello")
    assert played.worker.texts(played.bench.session(chat)) == ["hello"]


async def test_nothing_is_lost_between_two_gateways(stage: Stage) -> None:
    """One ends, then another one starts: what was said meanwhile is answered, and nothing twice."""
    first = await stage.gateway()
    chats = [stage.bench.chat(number) for number in range(3)]
    await stage.say(chats[0], "before")
    await stage.sees(chats[0], "echo: before")
    await first.drain()
    telling = asyncio.gather(*(stage.say(chat, "between") for chat in chats))
    await stage.gateway()
    await telling
    await stage.sees(chats[0], "echo: before", "echo: between")
    for chat in chats[1:]:
        await stage.sees(chat, "echo: between")
    assert len(stage.worker.received) == 4
