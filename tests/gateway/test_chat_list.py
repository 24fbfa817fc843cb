"""The list of a person's chats over the socket: titles, pins, deletion and its undoing."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from shared.store import keys
from shared.store.schedules.agenda import Agenda
from shared.store.sessions.erase import erase_deleted_chat
from tests.gateway.harness import TOKENS, Client, Gateway, client, gateway, session_of, worker


@pytest.fixture
async def gw(redis_url: str) -> AsyncIterator[Gateway]:
    async with gateway(redis_url) as running:
        yield running


async def listed(person: Client, **fields: Any) -> dict[str, dict[str, Any]]:
    await person.send("chats", **fields)
    return {row["chat"]: row for row in (await person.next("chats"))["chats"]}


async def test_a_chat_gets_another_title_and_keeps_it(gw: Gateway) -> None:
    """Later messages do not name it again, and the answer is its new row."""
    async with client(gw.address) as owner:
        await owner.say("a", "How are otters?")
        await owner.send("label", chat="a", title="  Otters \n at sea ")
        [row] = (await owner.next("chats"))["chats"]
        assert (row["chat"], row["title"], row["pinned"]) == ("a", "Otters at sea", False)
        await owner.say("a", "And seals?")
        assert (await listed(owner))["a"]["title"] == "Otters at sea"


async def test_a_chat_is_pinned_and_unpinned(gw: Gateway) -> None:
    """Its place in the list stays that of its last activity: the page puts it on top."""
    async with client(gw.address) as owner:
        for chat in ("a", "b"):
            await owner.say(chat, "hello")
        await owner.send("label", chat="a", pinned=True)
        assert (await owner.next("chats"))["chats"][0]["pinned"] is True
        rows = await listed(owner)
        assert {chat: row["pinned"] for chat, row in rows.items()} == {"b": False, "a": True}
        await owner.send("label", chat="a", pinned=False)
        assert (await owner.next("chats"))["chats"][0]["pinned"] is False


@pytest.mark.parametrize(("title", "code"), [(" \n", "empty"), ("x" * 1001, "bad_frame"), ("fine", "not_found")])
async def test_a_title_that_cannot_be_given_is_refused(gw: Gateway, title: str, code: str) -> None:
    """The error says which; a chat without a message has no title."""
    async with client(gw.address) as owner:
        await owner.send("label", chat="none", title=title)
        assert (await owner.next("error"))["code"] == code
    assert await gw.client.command("EXISTS", keys.session(session_of("none"))) == 0


async def test_the_list_says_whether_it_is_whole(gw: Gateway) -> None:
    """Only then does a chat that is missing not exist any more."""
    async with client(gw.address) as owner:
        for chat in ("a", "b"):
            await owner.say(chat, "hello")
        await owner.send("chats", limit=1)
        part = await owner.next("chats")
        assert ([row["chat"] for row in part["chats"]], part["whole"]) == (["b"], False)
        await owner.send("chats", limit=1000)
        assert (await owner.next("chats"))["whole"] is True


async def test_the_time_of_a_chat_is_that_of_its_last_message_or_answer(gw: Gateway, redis_url: str) -> None:
    """The page shows the time of the last line; after a reload it must be the same."""
    async with client(gw.address) as owner, worker(redis_url) as made:
        await owner.say("a", "hello")
        await owner.say("b", "hello")
        before = (await listed(owner))["a"]["at"]
        await made.run_once()
        updated = int(await gw.client.command("HGET", keys.session(session_of("a")), "updated"))
        assert (await listed(owner))["a"]["at"] == updated >= before


async def test_a_deleted_chat_leaves_the_list_until_that_is_undone(gw: Gateway) -> None:
    """Everything of it is there for the time in which that can be undone."""
    async with client(gw.address) as owner:
        await owner.say("a", "hello")
        await owner.send("delete", chat="a")
        assert (await owner.next("deleted")) == {"type": "deleted", "chat": "a", "undo_s": 10.0}
        assert await listed(owner) == {}
        for _ in range(2):  # the second one finds that it was taken back
            await owner.send("undelete", chat="a")
            assert (await owner.next("chats"))["chats"][0]["title"] == "hello"
        assert list(await listed(owner)) == ["a"]
        await owner.send("history", chat="a")
        assert [line["text"] for line in (await owner.next("history"))["lines"]] == ["hello"]


async def test_a_deletion_that_is_due_erases_the_chat_and_is_not_undone(gw: Gateway) -> None:
    """Nothing that names the chat is left, except the job that deletes its files."""
    async with client(gw.address) as owner:
        await owner.say("a", "hello")
        await owner.send("delete", chat="a")
        await owner.next("deleted")
        assert await due_chats(gw) == [True]
        await owner.send("undelete", chat="a")
        assert (await owner.next("error"))["code"] == "too_late"
        assert await listed(owner) == {}
        await owner.send("history", chat="a")
        assert (await owner.next("history"))["lines"] == []
    left = [name.decode() for name in await gw.client.command("KEYS", "*")]
    assert [name for name in left if session_of("a") in name] == []


async def test_a_chat_that_is_written_to_after_its_deletion_stays(gw: Gateway) -> None:
    """An accepted message is answered: another device may still have shown the chat."""
    async with client(gw.address) as owner:
        await owner.say("a", "hello")
        await owner.send("delete", chat="a")
        await owner.next("deleted")
        # A moment ago: the two must not be of one millisecond.
        await gw.client.command("ZINCRBY", keys.EPHEMERAL, -100, session_of("a"))
        await owner.say("a", "are you there?")
        assert list(await listed(owner)) == ["a"]
        assert await due_chats(gw) == [False]
        assert list(await listed(owner)) == ["a"]


async def test_nobody_deletes_or_names_chats_of_another_person(gw: Gateway) -> None:
    """The principal is part of the chat's name."""
    async with client(gw.address) as owner, client(gw.address, TOKENS["ann"]) as ann:
        await owner.say("a", "hello")
        await ann.send("label", chat="a", title="mine")
        assert (await ann.next("error"))["code"] == "not_found"
        await ann.send("delete", chat="a")
        await ann.next("deleted")
        await due_chats(gw)
        assert (await listed(owner))["a"]["title"] == "hello"


async def due_chats(gw: Gateway) -> list[bool]:
    """Make every deletion due, and erase as the sweep of a worker does."""
    for member in await gw.client.command("ZRANGE", keys.EPHEMERAL, 0, -1):
        at = int(float(await gw.client.command("ZSCORE", keys.EPHEMERAL, member)))
        # As if it had been deleted, and written to, that much earlier.
        by = at - int(float((await gw.client.command("TIME"))[0])) * 1000 + 1000
        await gw.client.command("ZADD", keys.EPHEMERAL, at - by, member)
        chat = member.decode().removeprefix("web:").replace("%2F", "/")
        listed = keys.chats("web", chat.partition("/")[0])
        if await gw.client.command("ZSCORE", listed, chat):
            await gw.client.command("ZINCRBY", listed, -by, chat)
    agenda, erased = Agenda(gw.client, keys.EPHEMERAL), []
    for due in await agenda.due():
        erased.append(await erase_deleted_chat(gw.client, due))
        await agenda.remove(due)
    return erased
