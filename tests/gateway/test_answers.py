"""Branches and ratings over the socket: whose they are, what every device gets, and the exports."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from gateway.channels.web.socket.socket import SocketLimits
from shared.messages.live import TurnEvent
from shared.messages.outbound import OutboundMessage
from shared.messages.transcript import AssistantEntry, UserEntry
from shared.metrics import ANSWERS_RATED, totals
from shared.store import keys
from shared.store.client.redis_client import RedisClient
from shared.store.turns.queue import LeaseQueue
from shared.store.turns.turn_writes import Turns
from tests.gateway.harness import TOKENS, Client, Frame, Gateway, client, gateway, session_of
from tests.gateway.test_chat_search import get


@pytest.fixture
async def gw(redis_url: str) -> AsyncIterator[Gateway]:
    async with gateway(redis_url) as running:
        yield running


async def answer(store: RedisClient, text: str) -> None:
    """Answer the message that waits, as a worker does."""
    [claim] = await LeaseQueue(store, "turns", owner="w" * 32, lease_s=30).acquire(1)
    assert claim.turn is not None
    n, record = claim.turn.n, claim.turn.record
    asked = record.decode(errors="replace")
    await Turns(store).commit(
        claim,
        history=[UserEntry(content=asked, turn=n), AssistantEntry(content=text, turn=n)],
        lines=[OutboundMessage(content=text, turn=n, in_reply_to=(f"m{n}",), at=1)],
        event=TurnEvent(n, "done"),
    )


async def turn(gw: Gateway, person: Client, text: str, chat: str = "a", n: int = 1) -> Frame:
    """A message and its answer; return the answer's line."""
    await person.say(chat, text, id=f"m{n}")
    await answer(gw.client, f"re {text}")
    return await person.next("reply", chat=chat, turn=n)


async def lines(person: Client, chat: str) -> list[Frame]:
    await person.send("history", chat=chat)
    found: list[Frame] = (await person.next("history", chat=chat))["lines"]
    return found


async def test_a_branch_is_made_and_its_row_comes_back(gw: Gateway) -> None:
    """On the page that asked; its first line names the other chat for a link."""
    async with client(gw.address) as owner:
        line = await turn(gw, owner, "one")
        await owner.send("branch", chat="a", seq=line["seq"], to="b")
        [row] = (await owner.next("chats"))["chats"]
        assert (row["chat"], row["title"], row["running"], row["seq"] - row["seen"]) == ("b", "one (branch)", False, 0)
        first, *rest = await lines(owner, "b")
        assert (first["kind"], first["branch_of"]) == ("notice", "a")
        assert [one["text"] for one in rest] == ["one", "re one"]


async def test_other_pages_hear_of_a_branch_by_their_feed(gw: Gateway) -> None:
    """Of this person; nobody else does."""
    async with client(gw.address) as owner, client(gw.address) as other, client(gw.address, TOKENS["ann"]) as ann:
        for one in (other, ann):
            await one.send("feed")
            await one.next("feed")
        line = await turn(gw, owner, "one")
        await owner.send("branch", chat="a", seq=line["seq"], to="b")
        while True:
            rows = {row["chat"]: row["title"] for row in (await other.next("feed"))["chats"]}
            if "b" in rows:
                break
        assert rows["b"] == "one (branch)"
        await ann.pong()
        assert [frame for frame in ann.seen if "b" in str(frame.get("facts"))] == []


async def test_a_repeated_frame_is_the_same_branch(gw: Gateway) -> None:
    """A page sends it again when its connection was lost before the answer came."""
    async with client(gw.address) as owner:
        line = await turn(gw, owner, "one")
        for _ in range(3):
            await owner.send("branch", chat="a", seq=line["seq"], to="b")
            assert [row["chat"] for row in (await owner.next("chats"))["chats"]] == ["b"]
        await owner.send("chats")
        assert sorted(row["chat"] for row in (await owner.next("chats"))["chats"]) == ["a", "b"]


async def test_branches_are_limited_as_messages_are(redis_url: str) -> None:
    """Each copies a conversation. The error names the chat, so the page lets the person try again."""
    limits = SocketLimits(messages_burst=2, messages_per_s=0.1)
    async with gateway(redis_url, socket_limits=limits) as gw, client(gw.address) as owner:
        line = await turn(gw, owner, "one")
        await owner.send("branch", chat="a", seq=line["seq"], to="b")
        await owner.next("chats")
        await owner.send("branch", chat="a", seq=line["seq"], to="c")
        error = await owner.next("error")
        assert (error["code"], error["chat"]) == ("rate_limited", "a")
        assert 0 < error["retry_after"] <= 20
        assert await gw.client.command("EXISTS", keys.session(session_of("c"))) == 0


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"seq": 1, "to": "b"}, "not_found"),
        ({"seq": 99, "to": "b"}, "not_found"),
        ({"seq": 2, "to": "a"}, "occupied"),
        ({"seq": 2, "to": "x/../y"}, "bad_chat"),
        ({"seq": -1, "to": "b"}, "bad_frame"),
        ({"seq": 2}, "bad_frame"),
    ],
)
async def test_a_branch_that_cannot_be_made_is_refused(gw: Gateway, fields: dict[str, Any], code: str) -> None:
    """The error says why, and names the chat."""
    async with client(gw.address) as owner:
        await turn(gw, owner, "one")
        await owner.send("branch", chat="a", **fields)
        error = await owner.next("error")
        assert (error["code"], error["chat"]) == (code, "a")
    assert await gw.client.command("EXISTS", keys.session(session_of("b"))) == 0


async def test_nobody_makes_a_branch_of_another_persons_chat_or_rates_its_answers(gw: Gateway) -> None:
    """The principal is part of every name."""
    async with client(gw.address) as owner, client(gw.address, TOKENS["ann"]) as ann:
        line = await turn(gw, owner, "one")
        await ann.send("branch", chat="a", seq=line["seq"], to="b")
        assert (await ann.next("error"))["code"] == "not_found"
        await ann.send("rate", chat="a", seq=line["seq"], rating="up")
        assert (await ann.next("error"))["code"] == "not_found"
        assert [one["text"] for one in await lines(owner, "a")] == ["one", "re one"]


async def test_a_rating_comes_to_every_device_and_stays(gw: Gateway) -> None:
    """As a line of the log, which a page that is loaded later reads, too. It is counted."""
    before = totals(ANSWERS_RATED)
    async with client(gw.address) as owner, client(gw.address) as other:
        await other.send("resume", chat="a")
        await other.next("resumed")
        line = await turn(gw, owner, "one")
        for rating in ("up", "down", ""):
            await owner.send("rate", chat="a", seq=line["seq"], rating=rating)
            for person in (owner, other):
                got = await person.next("reply", chat="a", rates=line["seq"])
                assert (got.get("rating", ""), got["kind"], got["text"]) == (rating, "withdrawn", "")
        await owner.send("rate", chat="a", seq=line["seq"], rating="up")
        await owner.next("reply", rates=line["seq"])
        assert [one.get("rating") for one in await lines(other, "a")][-1] == "up"
    counted = {label: value - before.get(label, 0) for label, value in totals(ANSWERS_RATED).items()}
    assert counted == {("up",): 2, ("down",): 1, ("none",): 1}


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"seq": 1, "rating": "up"}, "not_found"),
        ({"seq": 2, "rating": "great"}, "bad_frame"),
        ({"seq": 2}, "bad_frame"),
    ],
)
async def test_a_rating_that_cannot_be_given_is_refused(gw: Gateway, fields: dict[str, Any], code: str) -> None:
    """The error says why."""
    async with client(gw.address) as owner:
        await turn(gw, owner, "one")
        await owner.send("rate", chat="a", **fields)
        assert (await owner.next("error"))["code"] == code


async def test_exports_have_ratings_with_their_answers(gw: Gateway) -> None:
    """Not as lines of their own."""
    async with client(gw.address) as owner:
        for n, (text, rating) in enumerate((("one", "up"), ("two", "down"), ("three", "up")), start=1):
            line = await turn(gw, owner, text, n=n)
            await owner.send("rate", chat="a", seq=line["seq"], rating=rating)
            await owner.next("reply", rates=line["seq"])
        await owner.send("rate", chat="a", seq=line["seq"], rating="")
        await owner.next("reply", rates=line["seq"])
    document = json.loads((await get(gw, "/export/a?format=json"))[1])
    assert [(one["text"], one.get("rating")) for one in document["lines"] if one["from"] == "agent"] == [
        ("re one", "up"),
        ("re two", "down"),
        ("re three", None),
    ]
    assert len(document["lines"]) == 6
    text = (await get(gw, "/export/a?format=md"))[1].decode()
    assert text.count(", rated good\n\nre one") == 1
    assert text.count(", rated bad\n\nre two") == 1
    assert text.count("rated") == 2
