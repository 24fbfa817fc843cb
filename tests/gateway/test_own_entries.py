"""Who may speak to Shoal's own entries: the chat page, the API, and `shoal chat` (of platforms: test_every_entry.py).

There are no groups, no nicknames and no codes here: a token is one person, and whatever else a request says of who it
is from is only its own word.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any, Final, Literal, Protocol

import msgspec
import pytest

from console.chat.client import ChatClient, ChatEnded, ClientEvent
from console.chat.state import MessageRefused
from shared.ids import session_id
from shared.messages.inbound import InboundMessage, decode_inbound
from shared.messages.outbound import OutboundMessage
from shared.messages.web import AcceptedFrame
from shared.settings import Settings
from shared.store import keys
from shared.store.access.pairing import PairedPerson, Pairings, let_in_line
from shared.store.client.redis_client import RedisClient
from shared.store.delivery.outbox import Outbox
from tests.gateway.channels.api.asking import post, user
from tests.gateway.harness import TOKENS, Gateway, gateway, stranger
from tests.helpers.parked import QUESTION, decisions, park
from tests.helpers.wait import eventually

TOKEN = TOKENS["owner"]

Outcome = Literal["taken", "refused"]

SPOOFS: Final[dict[str, Any]] = {
    "principal": "owner",
    "sender": "owner",
    "sender_id": "owner",
    "name": "owner",
    "metadata": {"admin": "1", "group": "1", "sender_name": "owner"},
    "session": "web:owner/a",
    "channel": "telegram",
}
"""What a client may claim in vain."""


class Entry(Protocol):
    """One way in. `say` returns when it is known whether a message was taken."""

    name: str

    def session(self, principal: str) -> str:
        """Of the chat `a` of somebody."""
        ...

    async def say(self, gw: Gateway, token: str, text: str, id: str) -> Outcome: ...


class Page:
    """A socket, as the page opens it."""

    name = "page"

    def session(self, principal: str) -> str:
        return session_id("web", f"{principal}/a")

    async def say(self, gw: Gateway, token: str, text: str, id: str) -> Outcome:
        async with stranger(gw.address) as page:
            await page.send("hello", token=token, **SPOOFS)
            await page.send("message", id=id, chat="a", text=text, **SPOOFS)
            frame = await page.next("accepted") if await self._welcomed(page) else {"type": "error"}
            return "taken" if frame["type"] == "accepted" else "refused"

    async def _welcomed(self, page: Any) -> bool:
        while True:
            frame = msgspec.json.decode(await page.socket.recv())
            if frame["type"] in ("welcome", "error"):
                return bool(frame["type"] == "welcome")


class Api:
    """A request under a session's name."""

    name = "API"

    def session(self, principal: str) -> str:
        return session_id("api", f"{principal}/a")

    async def say(self, gw: Gateway, token: str, text: str, id: str) -> Outcome:
        body = {"model": "shoal", "messages": [user(text)], "user": "a", "metadata": SPOOFS["metadata"]}
        headers = {"Idempotency-Key": id, "X-Forwarded-User": "owner", "X-User": "owner"}
        asking = asyncio.create_task(post(gw.address, body, token=token or None, headers=headers))

        whose = next((who for who, one in TOKENS.items() if one == token), "nobody")

        async def settled() -> bool:  # a message that was taken waits for its turn
            found = await waiting(gw.client, self.session(whose))
            return asking.done() or text in [one.content for one in found]

        try:
            await eventually(settled, within_s=30, what="an answer")
            return "refused" if asking.done() and asking.result().status >= 400 else "taken"
        finally:
            asking.cancel()
            await asyncio.wait({asking})


class Terminal:
    """`shoal chat`."""

    name = "shoal chat"

    def session(self, principal: str) -> str:
        return session_id("web", f"{principal}/a")

    async def say(self, gw: Gateway, token: str, text: str, id: str) -> Outcome:
        frames: list[ClientEvent] = []
        chat = ChatClient(f"ws://{gw.address}/ws", token, "a")
        chat.send_message(text, id)

        def settled() -> bool:
            while not chat.events.empty():
                frames.append(chat.events.get())
            return any(isinstance(one, AcceptedFrame | MessageRefused | ChatEnded) for one in frames)

        chat.__enter__()
        try:
            await eventually(settled, within_s=30, what="an answer")
        finally:  # in a thread: the gateway ends its side of the connection meanwhile
            await asyncio.to_thread(chat.__exit__, None, None, None)
        return "taken" if any(isinstance(one, AcceptedFrame) for one in frames) else "refused"


ENTRIES: Final[Sequence[Entry]] = (Page(), Api(), Terminal())

every_entry = pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.name)


@pytest.fixture
async def gw(redis_url: str) -> AsyncIterator[Gateway]:
    """With a command by which people are let in: some platform has admins."""
    settings = Settings(channels={"telegram": {"admins": ["1"]}})
    async with gateway(redis_url, settings=settings) as running:
        yield running


async def waiting(client: RedisClient, session: str) -> list[InboundMessage]:
    entries = await client.command("XRANGE", keys.inbox(session), "-", "+")
    return [decode_inbound(fields[3]) for _, fields in entries]


@every_entry
@pytest.mark.parametrize(
    "token",
    ["", " ", "wrong", "owner", TOKEN.upper(), f"{TOKEN}2", TOKEN[:-1], f"Bearer {TOKEN}", f"{TOKEN},anns-secret"],
)
async def test_a_sender_without_a_token_of_this_gateway_is_refused(gw: Gateway, entry: Entry, token: str) -> None:
    """Not with somebody's name, nor with nearly their token; nothing of it is kept."""
    assert await entry.say(gw, token, "let me in", "m1") == "refused"
    assert await gw.client.command("KEYS", "shoal:{0ax}:inbox:*") == []
    assert await gw.client.command("KEYS", "shoal:{0ax}:session:*") == []


@every_entry
async def test_whoever_calls_themselves_otherwise_stays_who_they_are(gw: Gateway, entry: Entry) -> None:
    """Names, roles and sessions that a request brings are not read."""
    assert await entry.say(gw, TOKENS["ann"], "I am the owner", "m1") == "taken"
    [message] = await waiting(gw.client, entry.session("ann"))
    assert (message.sender_id, message.content) == ("ann", "I am the owner")
    assert message.chat_id == "ann/a"
    assert not {"admin", "group", "sender_name", "bot", "outside"} & message.metadata.keys()
    inboxes = await gw.client.command("KEYS", "shoal:{0ax}:inbox:*")
    assert inboxes == [keys.inbox(entry.session("ann")).encode()]


@every_entry
async def test_a_message_sent_again_in_other_words_stays_what_it_was(gw: Gateway, entry: Entry) -> None:
    """Under its id, by the same person: one turn. Another person's is another message."""
    assert await entry.say(gw, TOKENS["ann"], "first", "m1") == "taken"
    await entry.say(gw, TOKENS["ann"], "second", "m1")
    assert [one.content for one in await waiting(gw.client, entry.session("ann"))] == ["first"]
    assert await entry.say(gw, TOKENS["owner"], "mine", "m1") == "taken"
    assert [one.content for one in await waiting(gw.client, entry.session("owner"))] == ["mine"]


@every_entry
async def test_nobody_is_let_in_to_a_platform_from_here(gw: Gateway, entry: Entry) -> None:
    """Whoever runs Shoal has `shoal pair`; a code that is tried here is no guess, however often."""
    pairings = Pairings(gw.client)
    stranger_there = PairedPerson(channel="telegram", sender="7", session="telegram:7", name="Ada")
    await pairings.offer_code(
        stranger_there, lambda code: OutboundMessage(content=code, turn=0), reason="unknown_sender"
    )
    [line] = await Outbox(gw.client).read_after("telegram:7", after=0)
    assert isinstance(line.line, OutboundMessage)
    code = line.line.content
    for nth in range(6):
        await entry.say(gw, TOKENS["owner"], f"/pair {code}", f"m{nth}")
    reply = [one.line for one in await Outbox(gw.client).read_after(entry.session("owner"), after=0)]
    answer = [one.content for one in reply if isinstance(one, OutboundMessage)]
    assert len(answer) == 6
    assert all("Only who is named in `admins`" in one for one in answer)
    assert not await pairings.is_let_in("telegram", "7")
    let_in = await pairings.approve(code, let_in_line(0), by="console", request="r")
    assert let_in.sender == "7"


@every_entry
async def test_of_a_yes_and_a_no_at_once_one_counts(gw: Gateway, redis_url: str, entry: Entry) -> None:
    """To two gateways at the same moment; somebody else's yes is about nothing that they were asked."""
    async with gateway(redis_url) as other:
        assert await entry.say(gw, TOKENS["owner"], "go", "m1") == "taken"
        await park(gw.client)
        await entry.say(gw, TOKENS["ann"], f"/yes {QUESTION.id}", "m2")
        assert await decisions(gw.client, entry.session("owner")) == []
        await asyncio.gather(
            entry.say(gw, TOKENS["owner"], f"/yes {QUESTION.id}", "m3"),
            entry.say(other, TOKENS["owner"], f"/no {QUESTION.id}", "m4"),
        )
        [counted] = await decisions(gw.client, entry.session("owner"))
        assert counted.by == "owner"
