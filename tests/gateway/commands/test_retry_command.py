"""`/retry`: the newest turn leaves the conversation and its message is answered again, in one step and once."""

from __future__ import annotations

import asyncio

import pytest

from gateway.channels.web.http import export
from gateway.commands.registry import build_commands
from gateway.ingress.ingest import Ingress
from shared.errors import Refused
from shared.ids import nonce
from shared.messages.inbound import InboundMessage, decode_inbound
from shared.messages.live import TurnEvent
from shared.messages.outbound import OutboundMessage, UserLine
from shared.messages.transcript import AssistantEntry, ToolEntry, TranscriptEntry, UserEntry, decode_transcript
from shared.settings import Settings
from shared.store import keys
from shared.store.client.redis_client import RedisClient
from shared.store.delivery.outbox import Outbox
from shared.store.turns.inbox import InboxLimits
from shared.store.turns.queue import Claim, LeaseQueue
from shared.store.turns.turn_writes import Turns
from tests.helpers.build import message

SESSION = "web:owner/a"


@pytest.fixture
def ingress(client: RedisClient) -> Ingress:
    return Ingress(client, build_commands(Settings(), client))


async def tell(ingress: Ingress, text: str, *, id: str = "", media: tuple[str, ...] = ()) -> None:
    """Write as a person does on the page."""
    id = id or nonce()
    sent = InboundMessage(
        channel="web", chat_id="owner/a", sender_id="owner", id=id, content=text, timestamp=1, media=media
    )
    await ingress.ingest(sent, show=UserLine(id=id, text=text, media=media), principal="owner")


async def claimed(client: RedisClient) -> tuple[Claim, InboundMessage]:
    [claim] = await LeaseQueue(client, "turns", owner=nonce(), lease_s=30).acquire(1)
    assert claim.turn is not None
    return claim, decode_inbound(claim.turn.record)


async def answer(client: RedisClient, text: str, *, kept: bool = True, kind: str = "reply") -> InboundMessage:
    """Answer what waits, as a worker does; return the message."""
    claim, asked = await claimed(client)
    assert claim.turn is not None
    n = claim.turn.n
    history: list[TranscriptEntry] = [
        UserEntry(content=asked.content, turn=n, sender_id=asked.sender_id),
        AssistantEntry(content=None, turn=n),
        ToolEntry(call_id="c", name="t", content="r", turn=n),
        AssistantEntry(content=text, turn=n),
    ]
    line = OutboundMessage(content=text, turn=n, in_reply_to=(asked.id,), kind=kind)  # type: ignore[arg-type]
    await Turns(client).commit(claim, history=history if kept else [], lines=[line], event=TurnEvent(n, "done"))
    return asked


async def conversation(client: RedisClient) -> list[str]:
    records = await client.command("LRANGE", keys.history(SESSION), 0, -1)
    return [entry.content or "" for entry in map(decode_transcript, records) if not isinstance(entry, ToolEntry)]


async def last_line(client: RedisClient) -> str:
    line = (await Outbox(client).read_after(SESSION, after=0))[-1].line
    return line.text if isinstance(line, UserLine) else line.content


async def test_the_last_message_is_answered_again_and_the_old_answer_leaves_the_conversation(
    client: RedisClient, ingress: Ingress
) -> None:
    """Files go along; the log keeps all lines, and the new one names the turn that it replaces."""
    await tell(ingress, "first")
    await answer(client, "one")
    await tell(ingress, "second", id="m2", media=("file",))
    await answer(client, "two")
    await tell(ingress, "/retry", id="r")
    assert await conversation(client) == ["first", "", "one"]
    again = await answer(client, "two, better")
    assert (again.id, again.content, again.media) == ("r", "second", ("file",))
    assert await conversation(client) == ["first", "", "one", "second", "", "two, better"]
    lines = [one.line for one in await Outbox(client).read_after(SESSION, after=0)]
    assert [line.text for line in lines if isinstance(line, UserLine)] == ["first", "second", "second"]
    assert [line.replaces for line in lines if isinstance(line, UserLine)] == [0, 0, 2]
    sizes = [len(record) for record in await client.command("LRANGE", keys.history(SESSION), 0, -1)]
    assert int(await client.command("HGET", keys.session(SESSION), "history")) == sum(sizes)


async def test_a_new_text_takes_the_place_of_the_message_and_again(client: RedisClient, ingress: Ingress) -> None:
    """The only turn of a chat may go as well, and one that was itself answered again."""
    await tell(ingress, "how is teh weather")
    await answer(client, "what?")
    await tell(ingress, "/retry how is the weather\nin Rome?")
    assert await conversation(client) == []
    assert (await answer(client, "fine")).content == "how is the weather\nin Rome?"
    await tell(ingress, "/retry")
    assert (await answer(client, "sunny")).content == "how is the weather\nin Rome?"
    assert await conversation(client) == ["how is the weather\nin Rome?", "", "sunny"]


async def test_the_same_command_delivered_often_is_answered_once(client: RedisClient, ingress: Ingress) -> None:
    """At once, while it waits, and after its answer: by whichever gateway."""
    await tell(ingress, "hello")
    await answer(client, "hi")
    await asyncio.gather(*(tell(ingress, "/retry", id="r") for _ in range(5)))
    await answer(client, "hi again")
    await tell(ingress, "/retry", id="r")
    assert await LeaseQueue(client, "turns", owner=nonce(), lease_s=30).acquire(1) == []
    assert await conversation(client) == ["hello", "", "hi again"]
    assert len(await Outbox(client).read_after(SESSION, after=0)) == 4


async def test_what_failed_is_tried_again(client: RedisClient, ingress: Ingress) -> None:
    """A turn that failed is not in the conversation, and the one before it stays there."""
    await tell(ingress, "first")
    await answer(client, "one")
    await tell(ingress, "second")
    await answer(client, "Sorry", kept=False, kind="apology")
    await tell(ingress, "/retry")
    assert (await answer(client, "two")).content == "second"
    assert await conversation(client) == ["first", "", "one", "second", "", "two"]


async def test_there_may_be_nothing_to_answer_again(client: RedisClient, ingress: Ingress) -> None:
    """In a new chat, after `/new`, while a message waits, and after a schedule's turn."""
    await tell(ingress, "/retry")
    assert "no message of yours" in await last_line(client)
    await tell(ingress, "hello")
    await tell(ingress, "/retry")
    assert "still at work" in await last_line(client)
    await answer(client, "hi")
    await tell(ingress, "/new")
    await tell(ingress, "/retry")
    assert "no message of yours" in await last_line(client)
    await ingress.ingest(message("planned", id="tick"))
    await answer(client, "done as planned")
    await tell(ingress, "/retry")
    assert "no message of yours" in await last_line(client)


async def test_on_a_chat_platform_it_is_read_from_the_conversation(client: RedisClient, ingress: Ingress) -> None:
    """There the log has no messages of people; another person's message is theirs."""
    mine = InboundMessage(channel="telegram", chat_id="7", sender_id="ann", id="1", content="hello", timestamp=1)
    await ingress.ingest(mine)
    await answer(client, "hi")
    theirs = InboundMessage(channel="telegram", chat_id="7", sender_id="bob", id="2", content="/retry", timestamp=2)
    await ingress.ingest(theirs)
    assert await LeaseQueue(client, "turns", owner=nonce(), lease_s=30).acquire(1) == []
    again = InboundMessage(channel="telegram", chat_id="7", sender_id="ann", id="3", content="/retry", timestamp=3)
    await ingress.ingest(again)
    _, asked = await claimed(client)
    assert (asked.id, asked.content, asked.sender_id) == ("3", "hello", "ann")


async def test_a_consolidation_under_way_takes_nothing_of_what_comes_after(
    client: RedisClient, ingress: Ingress
) -> None:
    """It read entries that are gone: it would remove as many of the new ones."""
    await tell(ingress, "hello")
    await answer(client, "hi")
    before = await client.command("HGET", keys.session(SESSION), "mark") or b"0"
    await tell(ingress, "/retry")
    await answer(client, "hi again")
    assert await client.command("HGET", keys.session(SESSION), "mark") != before


async def test_an_overloaded_fleet_refuses_it_and_nothing_is_lost(client: RedisClient, ingress: Ingress) -> None:
    """As any other message, which may be sent again."""
    await tell(ingress, "hello")
    await answer(client, "hi")
    full = Ingress(client, build_commands(Settings(), client), InboxLimits(sessions_cap=0))
    with pytest.raises(Refused, match="too many chats"):
        await tell(full, "/retry", id="r")
    assert await conversation(client) == ["hello", "", "hi"]
    await tell(ingress, "/retry", id="r")
    assert (await answer(client, "hi again")).id == "r"


async def test_an_export_says_what_was_replaced(client: RedisClient, ingress: Ingress) -> None:
    """Every line stays."""
    await tell(ingress, "hello")
    await answer(client, "hi")
    await tell(ingress, "/retry hello!")
    await answer(client, "hi!")
    lines = await Outbox(client).read_after(SESSION, after=0)
    text = export._markdown("Chat", lines).decode()
    assert [line.endswith(", replaced") for line in text.splitlines() if line.startswith("## ")] == [
        True,
        True,
        False,
        False,
    ]
    assert export._json("a", "Chat", lines).count(b'"replaced": true') == 2
