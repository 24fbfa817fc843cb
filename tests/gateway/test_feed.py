"""The feed of a person: what happens in all their chats, on every socket of theirs and on nobody else's."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Any

import pytest

from shared.errors import RedisAway, ReplyError
from shared.messages.inbound import InboundMessage
from shared.store import keys
from shared.store.delivery.feed import Feed, Missed, parse_fact
from shared.store.sessions.chats import Chats
from shared.store.sessions.erase import erase
from shared.store.turns.inbox import Inbox
from tests.gateway.harness import TOKENS, Client, Frame, Gateway, client, gateway, session_of, worker
from tests.helpers.build import message
from tests.helpers.questions import ask_for_approval

FEED = keys.feed("web:owner")


@pytest.fixture
async def gw(redis_url: str) -> AsyncIterator[Gateway]:
    async with gateway(redis_url) as running:
        yield running


async def follow(person: Client, after: str = "") -> Frame:
    """Follow the feed; the first frame, which has the list or what was missed."""
    await person.send("feed", after=after)
    return await person.next("feed")


async def fact(person: Client, holds: Callable[[Frame], object]) -> Frame:
    """The next fact for which this holds."""
    while True:
        for one in (await person.next("feed"))["facts"]:
            if holds(one):
                return dict(one)


async def row(person: Client, chat: str) -> Frame:
    """The next row of a chat that a feed brings."""
    while True:
        for one in (await person.next("feed"))["chats"]:
            if one["chat"] == chat:
                return dict(one)


def internal(chat: str, text: str) -> InboundMessage:
    """A message of Shoal's own, as of a schedule."""
    return message(text, chat=f"owner/{chat}")


async def test_the_first_frame_is_the_list(gw: Gateway, redis_url: str) -> None:
    """Each row says how far the chat is, how far it was read, and what it is at."""
    async with client(gw.address) as owner, worker(redis_url) as w:
        await owner.say("a", "otters?")
        await w.run_once()
        await owner.say("b", "seals?")
        first = await follow(owner)
        assert first["whole"] is True
        assert first["facts"] == []
        rows = {one["chat"]: one for one in first["chats"]}
        assert (rows["a"]["seq"], rows["a"]["seen"], rows["a"]["running"], rows["a"]["asks"]) == (2, 1, False, False)
        assert (rows["b"]["seq"], rows["b"]["seen"], rows["b"]["running"]) == (1, 1, True)


async def test_a_chat_made_on_one_socket_is_listed_on_the_other(gw: Gateway) -> None:
    """With its title, and as one in which a turn runs; what the person wrote is not unread."""
    async with client(gw.address) as phone, client(gw.address) as laptop:
        await follow(laptop)
        await phone.say("new", "How are otters?")
        made = await row(laptop, "new")
        assert (made["title"], made["running"], made["seq"], made["seen"]) == ("How are otters?", True, 1, 1)


async def test_an_answer_in_a_chat_that_nobody_shows_is_a_fact(gw: Gateway, redis_url: str) -> None:
    """A line came and the turn is over, in one fact, whoever asked."""
    async with client(gw.address) as phone, client(gw.address) as laptop, worker(redis_url) as w:
        await follow(laptop)
        await phone.say("a", "hello")
        await w.run_once()
        answered = await fact(laptop, lambda one: one.get("running") is False)
        assert (answered["chat"], answered["seq"], answered["asks"]) == ("a", 2, False)
        assert "seen" not in answered
        assert answered["at"] > 0


async def test_a_turn_that_nobody_asked_for_reaches_the_page(gw: Gateway, redis_url: str) -> None:
    """A schedule, or the report of a subagent: it runs, then its line is unread."""
    async with client(gw.address) as owner, worker(redis_url) as w:
        await owner.say("a", "hello")
        await w.run_once()
        await follow(owner)
        await Inbox(gw.client).ingest(internal("a", "remind"), internal=True)
        assert (await fact(owner, lambda one: "running" in one)) == {"chat": "a", "running": True}
        await w.run_once()
        assert (await fact(owner, lambda one: one.get("running") is False))["seq"] == 3


async def test_what_is_read_on_one_socket_is_read_on_the_other(gw: Gateway, redis_url: str) -> None:
    """Also for a socket that comes later, and never further than the log is."""
    async with client(gw.address) as phone, client(gw.address) as laptop, worker(redis_url) as w:
        await phone.say("a", "hello")
        await w.run_once()
        await follow(laptop)
        await phone.send("ack", chat="a", seq=7)
        assert await fact(laptop, lambda one: "seen" in one) == {"chat": "a", "seen": 2}
        assert (await follow(phone))["chats"][0]["seen"] == 2


async def test_a_new_title_a_pin_and_a_deletion_reach_the_other_socket(gw: Gateway) -> None:
    """And that the deletion was taken back."""
    async with client(gw.address) as phone, client(gw.address) as laptop:
        await phone.say("a", "otters")
        await follow(laptop)
        await phone.send("label", chat="a", title="Sea otters")
        assert (await row(laptop, "a"))["title"] == "Sea otters"
        await phone.send("label", chat="a", pinned=True)
        assert (await row(laptop, "a"))["pinned"] is True
        await phone.send("delete", chat="a")
        assert await fact(laptop, lambda one: "deleted" in one) == {"chat": "a", "deleted": True}
        await phone.send("undelete", chat="a")
        assert (await row(laptop, "a"))["title"] == "Sea otters"
        await erase(gw.client, session_of("a"))
        assert await fact(laptop, lambda one: "deleted" in one) == {"chat": "a", "deleted": True}


async def test_the_model_that_a_command_chose_reaches_the_list(redis_url: str) -> None:
    """A command may change what the list shows of its chat, and is read by whoever wrote it."""
    async with gateway(redis_url, presets=("fast",)) as gw, client(gw.address) as phone, client(gw.address) as laptop:
        await follow(laptop)
        await phone.send("message", id="m1", chat="a", text="/status")
        changed = await row(laptop, "a")
        assert (changed["seq"], changed["seen"], changed["running"]) == (2, 2, False)


async def test_new_ends_what_ran(gw: Gateway) -> None:
    """No chat is shown as running for ever."""
    async with client(gw.address) as phone, client(gw.address) as laptop:
        await follow(laptop)
        await phone.say("a", "hello")
        assert (await row(laptop, "a"))["running"] is True
        await phone.send("message", id="m2", chat="a", text="/new")
        assert (await fact(laptop, lambda one: one.get("running") is False))["chat"] == "a"


async def test_a_withdrawn_message_runs_no_more(gw: Gateway) -> None:
    """The line about it is the person's own."""
    async with client(gw.address) as phone, client(gw.address) as laptop:
        await follow(laptop)
        await phone.say("a", "hello", id="m1")
        await phone.send("withdraw", id="m1", chat="a")
        over = await fact(laptop, lambda one: one.get("running") is False)
        assert over == {"chat": "a", "seq": 2, "seen": 2, "running": False}


async def test_nobody_else_gets_a_persons_facts(gw: Gateway, redis_url: str) -> None:
    """Not live, not later, and not with a cursor of the other's feed."""
    async with client(gw.address) as owner, client(gw.address, TOKENS["ann"]) as ann, worker(redis_url) as w:
        first = await follow(owner)
        assert (await follow(ann))["chats"] == []
        await owner.say("a", "hello")
        await w.run_once()
        await fact(owner, lambda one: one.get("running") is False)
        again = await follow(ann, first["cursor"])
        assert (again["facts"], again["chats"]) == ([], [])
        assert sum(frame["type"] == "feed" for frame in ann.seen) == 2


async def test_a_socket_that_comes_back_gets_what_it_missed(gw: Gateway, redis_url: str) -> None:
    """In order, and nothing twice; with the rows of chats that are new."""
    async with worker(redis_url) as w:
        async with client(gw.address) as before:
            cursor = (await follow(before))["cursor"]
        async with client(gw.address) as phone, client(gw.address) as after:
            await phone.say("a", "hello")
            await w.run_once()
            await phone.send("ack", chat="a", seq=2)
            await phone.say("b", "there")
            missed = await follow(after, cursor)
            seen = [(one["chat"], one.get("seq"), one.get("seen")) for one in missed["facts"]]
            assert seen == [("a", 1, 1), ("a", 2, None), ("a", None, 2), ("b", 1, 1)]
            assert {one["chat"] for one in missed["chats"]} == {"a", "b"}
            assert missed["whole"] is False
            nothing = await follow(after, missed["cursor"])
            assert (nothing["facts"], nothing["chats"], nothing["whole"]) == ([], [], False)


@pytest.mark.parametrize("lost", ["trimmed", "expired", "broken", "never there"])
async def test_a_feed_that_does_not_go_back_that_far_begins_with_the_list(gw: Gateway, lost: str) -> None:
    """Then facts go on."""
    async with client(gw.address) as owner:
        cursor = (await follow(owner))["cursor"]
        await owner.say("a", "hello")
        match lost:
            case "trimmed":
                await gw.client.command("XTRIM", FEED, "MAXLEN", 1)
            case "expired":
                await gw.client.command("DEL", FEED)
            case "broken":
                await gw.client.command("DEL", FEED)
                await gw.client.command("SET", FEED, "junk")
            case "never there":
                cursor = "9999999999999-5"
        again = await follow(owner, cursor)
        assert again["whole"] is True
        assert [one["chat"] for one in again["chats"]] == ["a"]
        await owner.send("ack", chat="a", seq=1)
        await owner.say("b", "hello")
        assert (await row(owner, "b"))["title"] == "hello"


async def test_a_feed_is_short_and_expires(gw: Gateway) -> None:
    """However much happens; and where no page follows, there is none."""
    async with client(gw.address) as owner:
        await owner.say("a", "hello")
        assert await gw.client.command("EXISTS", FEED) == 0
        await Feed(gw.client).follow("web:owner", "")
        label = partial(gw.client.run, "sessions/label", session=session_of("a"), pin="")
        await asyncio.gather(*(label(title=f"title {number}") for number in range(400)))
        assert await gw.client.command("XLEN", FEED) < 320
        assert 0 < await gw.client.command("PTTL", FEED) <= 3_600_000


async def test_a_broken_feed_stops_no_chat(gw: Gateway, redis_url: str) -> None:
    """It is for display: the turn goes on, and the next follower makes it anew."""
    async with client(gw.address) as owner, worker(redis_url) as w:
        await gw.client.command("SET", FEED, "junk")
        await owner.say("a", "hello")
        assert await w.run_once() == 1
        assert (await owner.next("reply"))["text"] == "you said: hello"
        assert (await follow(owner))["chats"][0]["seq"] == 2


async def test_a_feed_that_cannot_be_read_leaves_the_list(gw: Gateway, monkeypatch: pytest.MonkeyPatch) -> None:
    """As where the list of Redis users is older than the gateway: people see their chats, and it is tried again."""

    async def refused(self: Feed, person: str, after: str) -> Missed:
        raise ReplyError("NOPERM this user has no permissions to access one of the keys")

    async with client(gw.address) as owner:
        await owner.say("a", "hello")
        with monkeypatch.context() as patch:
            patch.setattr(Feed, "follow", refused)
            patch.setattr("gateway.channels.web.socket.person_feed.BROKEN_AGAIN_S", 0.0)
            patch.setattr("gateway.channels.web.socket.person_feed.TICK_S", 0.01)
            listed = await follow(owner)
            assert (listed["cursor"], listed["whole"], listed["chats"][0]["chat"]) == ("", True, "a")
        assert (await owner.next("feed"))["cursor"] != ""


async def test_a_store_that_is_away_is_an_error_and_the_list_comes_with_it(
    gw: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One error, not one for each try."""

    async def away(self: Feed, person: str, after: str) -> Missed:
        raise RedisAway("gone")

    async with client(gw.address) as owner:
        with monkeypatch.context() as patch:
            patch.setattr(Feed, "follow", away)
            await owner.send("feed")
            assert (await owner.next("error"))["code"] == "unavailable"
        assert (await owner.next("feed"))["whole"] is True
        assert sum(frame["type"] == "error" for frame in owner.seen) == 1


@pytest.mark.parametrize("after", ["x", "1", "-", "1-1 2", "99999999999999999999-1", "1-99999999999999999999", 7, None])
async def test_a_cursor_that_is_none_is_refused(gw: Gateway, after: Any) -> None:
    """The socket stays open."""
    async with client(gw.address) as owner:
        await owner.send("feed", after=after)
        assert (await owner.next("error"))["code"] == "bad_frame"
        assert (await follow(owner))["whole"] is True


async def test_a_lost_subscription_is_made_up_for(gw: Gateway, redis_url: str) -> None:
    """What was published while pub/sub was cut comes from the stream."""
    async with client(gw.address) as phone, client(gw.address) as laptop:
        await phone.say("a", "hello")
        await follow(laptop)
        await gw.client.command("CLIENT", "KILL", "TYPE", "pubsub")
        await phone.send("ack", chat="a", seq=1)
        await phone.say("b", "there")
        assert (await row(laptop, "b"))["title"] == "there"


async def test_a_question_is_a_fact_until_it_is_answered(gw: Gateway) -> None:
    """The line is unread; the answer to it, on another device, is not."""
    async with client(gw.address) as phone, client(gw.address) as laptop:
        await phone.say("a", "hello")
        await follow(laptop)
        question = await ask_for_approval(gw.client)
        assert await fact(laptop, lambda one: "asks" in one) == {"chat": "a", "seq": 2, "asks": True}
        [listed] = (await follow(phone))["chats"]
        assert listed["asks"] is True
        await phone.send("approve", chat="a", call=question, yes=True)
        assert await fact(laptop, lambda one: "asks" in one) == {"chat": "a", "seq": 3, "seen": 3, "asks": False}


async def test_a_question_waits_in_the_list_until_it_is_answered(gw: Gateway) -> None:
    """Rows and facts agree."""
    session, now = session_of("a"), 4_000_000_000_000
    async with client(gw.address) as owner:
        await owner.say("a", "hello")
        for asked, asks in (
            (f"open ab {now} 1 1 - shell", True),
            (f"yes ab {now} 1 1 r shell", False),
            (f"open ab {now} 1 0 - shell", False),
            ("junk", False),
        ):
            await gw.client.command("HSET", keys.session(session), "asked", asked)
            [found] = await Chats(gw.client).rows("web", "owner", ["owner/a"])
            assert found.asks is asks


@pytest.mark.parametrize(
    ("text", "chat", "seq"),
    [(b"", None, None), (b"a", "a", None), (b"a seq 3 later yes", "a", 3), (b"a running 1 seq 2", "a", 2)],
)
def test_facts_of_a_newer_version_are_read_as_far_as_they_are_known(text: bytes, chat: str | None, seq: Any) -> None:
    """Two versions run side by side during an update."""
    found = parse_fact(b"1-1", text)
    assert (found and found.chat, found and found.seq) == (chat, seq)
