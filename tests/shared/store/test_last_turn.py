"""The newest turn of a chat, and the script that answers it again: only while everything is as it was read."""

from __future__ import annotations

import pytest

from shared.errors import Refused
from shared.ids import nonce
from shared.messages.live import TurnEvent
from shared.messages.outbound import OutboundMessage, UserLine
from shared.messages.transcript import AssistantEntry, UserEntry, decode_transcript
from shared.store import keys
from shared.store.client.redis_client import RedisClient
from shared.store.sessions.last_turn import LastTurn, read_last_turn
from shared.store.sessions.session import InboxChanged, Sessions, SessionState
from shared.store.turns.inbox import Inbox, InboxLimits
from shared.store.turns.queue import LeaseQueue
from shared.store.turns.turn_writes import Turns
from tests.helpers.build import message, say

SESSION = "web:owner/a"


async def turn(client: RedisClient, text: str, id: str) -> None:
    """A message, and its answer."""
    await say(Inbox(client), text, id=id)
    await answered(client, text, id)


async def answered(client: RedisClient, text: str, id: str) -> None:
    [claim] = await LeaseQueue(client, "turns", owner=nonce(), lease_s=30).acquire(1)
    assert claim.turn is not None
    n = claim.turn.n
    await Turns(client).commit(
        claim,
        history=[UserEntry(content=text, turn=n), AssistantEntry(content=f"re {text}", turn=n)],
        lines=[OutboundMessage(content=f"re {text}", turn=n, in_reply_to=(id,))],
        event=TurnEvent(n, "done"),
    )


async def read(client: RedisClient) -> tuple[SessionState, LastTurn]:
    last = await read_last_turn(client, SESSION)
    assert last is not None
    return await Sessions(client).state(SESSION), last


async def retry(
    client: RedisClient, state: SessionState, last: LastTurn, *, id: str = "r", limits: InboxLimits | None = None
) -> bool:
    """Answer it again; return whether that was done before."""
    texts, line = message("/retry", id=id), OutboundMessage(content=last.text, turn=0, kind="command")
    shown = UserLine(id=id, text="/retry")
    done = await Sessions(client, limits).answer_command(
        texts, line, state, change="retry", again=last, log_line=shown, principal="owner"
    )
    return done.duplicate


async def texts(client: RedisClient) -> list[str | None]:
    records = await client.command("LRANGE", keys.history(SESSION), 0, -1)
    return [decode_transcript(record).content for record in records]


async def test_the_newest_turn_with_its_message_and_entries(client: RedisClient) -> None:
    """As the log and the conversation have them."""
    await turn(client, "one", "m1")
    await turn(client, "two", "m2")
    _, last = await read(client)
    assert last == LastTurn(2, "two", (), "", 2, 4)


async def test_it_leaves_and_its_message_is_due_once(client: RedisClient) -> None:
    """The same command again changes nothing, while the message waits and afterwards."""
    await turn(client, "one", "m1")
    await turn(client, "two", "m2")
    state, last = await read(client)
    assert not await retry(client, state, last)
    assert await texts(client) == ["one", "re one"]
    assert await retry(client, state, last)
    await answered(client, "two", "r")
    assert await retry(client, state, last)
    assert await texts(client) == ["one", "re one", "two", "re two"]
    assert await LeaseQueue(client, "turns", owner=nonce(), lease_s=30).acquire(1) == []
    sizes = [len(record) for record in await client.command("LRANGE", keys.history(SESSION), 0, -1)]
    assert int(await client.command("HGET", keys.session(SESSION), "history")) == sum(sizes)


@pytest.mark.parametrize("between", ["a message", "a turn", "a consolidation"])
async def test_nothing_happens_when_something_came_between(client: RedisClient, between: str) -> None:
    """What was read is not the newest turn any more, or not all that there is."""
    await turn(client, "one", "m1")
    await turn(client, "two", "m2")
    state, last = await read(client)
    if between == "a message":
        await say(Inbox(client), "three", id="m3")
    elif between == "a turn":
        await turn(client, "three", "m3")
    else:
        await client.command("LPOP", keys.history(SESSION))
    before = await texts(client)
    with pytest.raises(InboxChanged):
        await retry(client, state, last)
    assert await texts(client) == before


async def test_too_many_waiting_sessions_refuse_it(client: RedisClient) -> None:
    """As any other message; the conversation stays whole."""
    await turn(client, "one", "m1")
    state, last = await read(client)
    with pytest.raises(Refused, match="too many chats"):
        await retry(client, state, last, limits=InboxLimits(sessions_cap=0))
    assert await texts(client) == ["one", "re one"]


async def test_an_empty_conversation_has_no_bytes(client: RedisClient) -> None:
    """The only turn of a chat goes as well, and one that failed takes nothing along."""
    await turn(client, "one", "m1")
    await retry(client, *await read(client))
    assert await texts(client) == []
    assert await client.command("HGET", keys.session(SESSION), "history") is None
    mark = await client.command("HGET", keys.session(SESSION), "mark")
    [claim] = await LeaseQueue(client, "turns", owner=nonce(), lease_s=30).acquire(1)
    sorry = OutboundMessage(content="Sorry", turn=2, in_reply_to=("r",), kind="apology")
    await Turns(client).commit(claim, history=[], lines=[sorry], event=TurnEvent(2, "failed"))
    await retry(client, *await read(client), id="r2")
    assert await client.command("HGET", keys.session(SESSION), "mark") == mark
    await answered(client, "one", "r2")
    assert await texts(client) == ["one", "re one"]


async def test_a_consolidation_that_read_the_turn_removes_nothing_that_came_after(client: RedisClient) -> None:
    """It would take as many entries from the head as it read."""
    await turn(client, "one", "m1")
    await turn(client, "two", "m2")
    mark = await client.command("HGET", keys.session(SESSION), "mark")
    state, last = await read(client)
    await retry(client, state, last)
    await answered(client, "two", "r")
    assert await client.command("HGET", keys.session(SESSION), "mark") != mark
    assert await texts(client) == ["one", "re one", "two", "re two"]
