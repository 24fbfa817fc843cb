"""Taking a message back, and what is not read, as a client of the web channel sees it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from shared.store import keys
from shared.store.turns.inbox import InboxLimits
from tests.gateway.harness import Gateway, client, gateway, session_of, worker


@pytest.fixture
async def gw(redis_url: str) -> AsyncIterator[Gateway]:
    async with gateway(redis_url) as running:
        yield running


async def test_a_message_is_withdrawn_on_every_device(gw: Gateway, redis_url: str) -> None:
    """A line of the log says so; with or without naming the chat; the others are answered."""
    async with client(gw.address) as phone, client(gw.address) as laptop, worker(redis_url) as w:
        await laptop.send("resume", chat="a", after=0)
        for nth in (1, 2, 3):
            await phone.say("a", f"m{nth}", id=f"m{nth}")
        await phone.send("withdraw", id="m2", chat="a")
        await laptop.send("withdraw", id="m3")
        for device in (phone, laptop):
            for id in ("m2", "m3"):
                line = await device.next("reply", kind="withdrawn", in_reply_to=[id])
                assert line["turn"] == 0
        assert await w.run_once() == 1
        assert await w.run_once() == 0
        reply = await phone.next("reply", kind="reply")
        assert reply["in_reply_to"] == ["m1"]
        assert await gw.client.command("EXISTS", keys.inbox(session_of("a"))) == 0


async def test_withdrawing_too_late_or_a_foreign_message_is_refused(gw: Gateway, redis_url: str) -> None:
    """`too_late` and `not_found` name the message; the socket stays open; another person's message stays."""
    async with client(gw.address) as me, client(gw.address, token="anns-secret") as ann, worker(redis_url) as w:
        await me.say("a", "hello", id="m1")
        await ann.send("withdraw", id="m1", chat="a")
        assert (await ann.next("error", id="m1"))["code"] == "not_found"
        await w.run_once()
        await me.next("reply")
        await me.send("withdraw", id="m1", chat="a")
        assert (await me.next("error", id="m1"))["code"] == "too_late"
        await me.send("withdraw", id="other")
        assert (await me.next("error", id="other"))["code"] == "not_found"
        await me.send("withdraw", id="m1", chat="no such chat!")
        assert (await me.next("error", code="bad_chat"))["type"] == "error"


async def test_a_message_that_is_not_read_is_accepted_without_a_turn_and_noted_in_the_chat(redis_url: str) -> None:
    """`reject`: the note is a line like others, so that every device and a client that comes back see it."""
    async with gateway(redis_url, inbox_limits=InboxLimits(busy="reject")) as gw, client(gw.address) as me:
        await me.say("a", "first", id="m1")
        accepted = await me.say("a", "second", id="m2")
        assert (accepted["turn"], accepted["ahead"]) == (0, 1)
        await me.shown("a", 3)
        note = me.lines("a")[-1]
        assert note["kind"] == "notice"
        assert note["in_reply_to"] == ["m2"]
        assert "not read" in note["text"]


async def test_who_joined_a_turn_is_shown_to_a_page(gw: Gateway) -> None:
    """The live event goes to every device as a frame."""
    from shared.messages.live import JoinedEvent
    from shared.store.delivery.fanout import publish

    async with client(gw.address) as me:
        await me.say("a", "first")
        await me.send("resume", chat="a", after=0)
        await me.next("resumed")
        await publish(gw.client, session_of("a"), JoinedEvent(1, (2, 3)))
        frame = await me.next("joined")
        assert frame == {"type": "joined", "chat": "a", "turn": 1, "messages": [2, 3]}
