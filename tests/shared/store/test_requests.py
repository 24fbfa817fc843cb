"""Requests over HTTP in the store: what a key means, for how long, and what is left of sessions that are of one."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from shared.ids import KEEP_MS, account_of, is_ephemeral, nonce
from shared.messages.codec import OPTIONS_VERSION, PLAIN_VERSION, SCHEMA_VERSION
from shared.messages.inbound import PRESET, ClientTool, InboundMessage, TurnOptions
from shared.messages.live import TurnEvent
from shared.messages.outbound import OutboundMessage
from shared.messages.transcript import AssistantEntry, IntentEntry, ToolEntry, UserEntry
from shared.store import keys
from shared.store.client.redis_client import RedisClient
from shared.store.delivery.outbox import Outbox
from shared.store.fleet.spending import Spending
from shared.store.sessions.erase import EphemeralSessions
from shared.store.sessions.requests import (
    ANSWER_LIMIT_BYTES,
    UNACCEPTED_MS,
    UNASKED_MS,
    ApiRequest,
    KeyReused,
    Requests,
)
from shared.store.turns.inbox import DAY_MS, Inbox, InboxLimits
from shared.store.turns.queue import Claim, LeaseQueue
from shared.store.turns.turn_writes import Turns

NAMED = "api:owner/a"


async def begin(
    requests: Requests, *, key: str | None = "k", session: str | None = None, asked: str = "h", principal: str = "owner"
) -> ApiRequest:
    return await requests.begin(principal, key=key, session=session, asked=asked)


def message_of(asked: ApiRequest, **fields: object) -> InboundMessage:
    chat = asked.session.removeprefix("api:")
    made = InboundMessage(
        channel="api", chat_id=chat, sender_id="owner", id=asked.ticket, content="hello", timestamp=1_700_000_000_000
    )
    return msgspec.structs.replace(made, **fields)


async def acquired(client: RedisClient) -> Claim:
    [claim] = await LeaseQueue(client, "turns", owner=nonce(), lease_s=30).acquire(1)
    return claim


async def committed(client: RedisClient, claim: Claim, asked: ApiRequest, limits: InboxLimits | None = None) -> None:
    line = OutboundMessage(content="hi", turn=1, in_reply_to=(asked.ticket,))
    history = (UserEntry(content="hello", turn=1), AssistantEntry(content="hi", turn=1))
    await Turns(client, limits).commit(claim, history=history, lines=[line], event=TurnEvent(1, "done"))


async def test_many_at_once_with_one_key_are_one_request(redis_url: str, client: RedisClient) -> None:
    """Whoever comes first names it, through whichever gateway."""
    other = RedisClient(redis_url)
    try:
        found = await asyncio.gather(*(begin(Requests(one)) for one in (client, other) * 10))
    finally:
        await other.close()
    assert len({one.ticket for one in found}) == 1
    assert sum(one.new for one in found) == 1
    assert len(await client.command("ZRANGE", keys.EPHEMERAL, 0, -1)) == 1


async def test_a_key_with_another_request_is_refused(client: RedisClient) -> None:
    """And the first one's stays as it is."""
    requests = Requests(client)
    first = await begin(requests)
    with pytest.raises(KeyReused, match="'k'"):
        await begin(requests, asked="other")
    assert (await begin(requests)).ticket == first.ticket


async def test_keys_of_two_people_are_two(client: RedisClient) -> None:
    """No word of one finds an answer of another; the key's name shows neither of them."""
    requests = Requests(client)
    a, b = await begin(requests), await begin(requests, principal="ann")
    assert a.ticket != b.ticket
    assert a.key != b.key
    assert "owner" not in a.key


async def test_without_a_key_nothing_is_remembered_but_the_session(client: RedisClient) -> None:
    """And of a named session not even that."""
    requests = Requests(client)
    assert (await begin(requests, key=None)).ticket != (await begin(requests, key=None)).ticket
    assert (await begin(requests, key=None, session=NAMED)).session == NAMED
    assert await client.command("KEYS", "*") == [keys.EPHEMERAL.encode()]
    assert await client.command("ZCARD", keys.EPHEMERAL) == 2


async def test_a_request_knows_where_its_answer_can_be_in_the_log(client: RedisClient) -> None:
    """The line before it, as it was when it began: later requests with the key look from there, too."""
    requests = Requests(client)
    await client.command("HSET", keys.session(NAMED), "log", 7)
    assert (await begin(requests, session=NAMED)).after == 7
    await client.command("HSET", keys.session(NAMED), "log", 9)
    assert (await begin(requests, session=NAMED)).after == 7


async def test_a_request_whose_message_nobody_took_is_soon_forgotten(client: RedisClient) -> None:
    """Refused ones cost ten minutes of a small key; one that was taken counts for a day."""
    requests = Requests(client)
    asked = await begin(requests)
    assert UNACCEPTED_MS - 60_000 < await client.command("PTTL", asked.key) <= UNACCEPTED_MS
    assert float(await client.command("ZSCORE", keys.EPHEMERAL, asked.session)) == asked.at_ms + UNACCEPTED_MS
    await requests.mark_accepted(asked, ephemeral=True)
    assert KEEP_MS - 60_000 < await client.command("PTTL", asked.key) <= KEEP_MS
    assert float(await client.command("ZSCORE", keys.EPHEMERAL, asked.session)) == asked.at_ms + KEEP_MS


async def test_a_session_that_nobody_can_ask_for_goes_earlier(client: RedisClient) -> None:
    """Without a key, should its gateway die. One that was ended meanwhile does not come back."""
    requests = Requests(client)
    asked = await begin(requests, key=None)
    await requests.mark_accepted(asked, ephemeral=True)
    assert float(await client.command("ZSCORE", keys.EPHEMERAL, asked.session)) == asked.at_ms + UNASKED_MS
    await client.command("DEL", keys.EPHEMERAL)
    await requests.mark_accepted(asked, ephemeral=True)
    assert await client.command("KEYS", "*") == []


async def test_the_first_answer_stands(client: RedisClient) -> None:
    """Two gateways tell the same; if ever they differed, everybody would still get one."""
    requests = Requests(client)
    asked = await begin(requests)
    assert await requests.read_answer(asked) is None
    assert await requests.store_answer(asked, b"one")
    assert await requests.store_answer(asked, b"two")
    assert (await begin(requests)).answer == await requests.read_answer(asked) == b"one"
    assert KEEP_MS - 60_000 < await client.command("PTTL", asked.key) <= KEEP_MS


async def test_what_cannot_be_kept_is_not(client: RedisClient) -> None:
    """Too long; without a key; a key that is over, or another's by now. No key comes to be that would never end."""
    requests = Requests(client)
    asked = await begin(requests)
    assert not await requests.store_answer(asked, b"x" * (ANSWER_LIMIT_BYTES + 1))
    assert not await requests.store_answer(await begin(requests, key=None), b"one")
    await client.command("DEL", asked.key)
    assert not await requests.store_answer(asked, b"one")
    assert await client.command("EXISTS", asked.key) == 0
    later = await begin(requests)
    assert not await requests.store_answer(asked, b"one")
    await requests.release(asked)
    assert (await begin(requests)).ticket == later.ticket


async def test_a_key_that_is_released_asks_anew(client: RedisClient) -> None:
    """Nothing came of it: the next one is another message."""
    requests = Requests(client)
    asked = await begin(requests)
    await requests.release(asked)
    again = await begin(requests, asked="other")
    assert again.new
    assert again.ticket != asked.ticket


async def test_nothing_is_left_of_a_session_that_ends(client: RedisClient) -> None:
    """While its turn runs: the turn can write nothing more, and every key is gone but what the sweep needs."""
    requests, ends = Requests(client), EphemeralSessions(client)
    asked = await begin(requests, key=None)
    await Inbox(client).ingest(message_of(asked))
    claim = await acquired(client)
    await Turns(client).append_step(claim, 1, IntentEntry(call_id="c1", turn=1))
    for key in (keys.memory(f"chat:{asked.session}"), keys.schedules(asked.session)):
        await client.command("HSET", key, "x", "y")
    await ends.end(asked.session)
    left = {key.decode() for key in await client.command("KEYS", "*")}
    stays = (keys.SEEN_PREFIX, keys.wake, keys.LAST_SERVED, keys.CLOCKS)
    assert {key for key in left if not key.startswith(stays)} == {keys.EPHEMERAL}
    assert [due.member for due in await ends.agenda.due()] == [asked.session]
    with pytest.raises(Exception, match="lease"):
        await committed(client, claim, asked)


@pytest.mark.parametrize(("session", "short"), [(None, True), (NAMED, False)])
async def test_a_session_of_one_request_is_not_kept_as_a_chat_is(
    client: RedisClient, session: str | None, short: bool
) -> None:
    """Where nobody ends it, it is there for a day: its answer, and no conversation to be summed up."""
    requests, limits = Requests(client), InboxLimits(idle_ms=1000)
    asked = await begin(requests, session=session)
    await Inbox(client, limits).ingest(message_of(asked))
    assert (await client.command("PTTL", keys.session(asked.session)) <= KEEP_MS) == short
    await committed(client, await acquired(client), asked, limits)
    for key in (keys.session(asked.session), keys.outbox(asked.session)):
        assert (await client.command("PTTL", key) <= KEEP_MS) == short
    assert (await client.command("PTTL", keys.session(asked.session)) > 300 * DAY_MS) == (not short)
    assert await client.command("LLEN", keys.history(asked.session)) == (0 if short else 2)
    assert await client.command("ZCARD", keys.IDLE) == (0 if short else 1)
    [line] = await Outbox(client).read_after(asked.session, after=asked.after)
    assert line.seq == 1


@pytest.mark.parametrize(
    ("fields", "version"),
    [
        ({}, PLAIN_VERSION),
        ({"options": TurnOptions(max_tokens=5)}, OPTIONS_VERSION),
        ({"options": TurnOptions(tools=(ClientTool("look"),))}, SCHEMA_VERSION),
        ({"history": (ToolEntry(call_id="c", name="look", content="rain", turn=0),)}, SCHEMA_VERSION),
        ({"history": (UserEntry(content="before", turn=0),)}, PLAIN_VERSION),
        ({"metadata": {PRESET: "deep"}}, PLAIN_VERSION),
        ({"metadata": {"group": "1"}}, PLAIN_VERSION),
    ],
)
async def test_every_message_carries_the_version_that_an_older_worker_leaves_alone(
    client: RedisClient, fields: dict[str, object], version: int
) -> None:
    """A worker that knows only lower versions leaves the message to a newer one: it would answer in
    another form than the client asked for. All other messages are for workers of both releases."""
    asked = await begin(Requests(client))
    await Inbox(client).ingest(message_of(asked, **fields))
    [[_, entry]] = await client.command("XRANGE", keys.inbox(asked.session), "-", "+")
    assert entry[:2] == [b"v", str(version).encode()]


async def test_one_persons_single_requests_have_one_account(client: RedisClient) -> None:
    """Else every request would have a day's budget of its own. A named session has its own account, as a chat has."""
    spending = Spending(client)
    for session in ("api:owner/~1", "api:owner/~2", "api:ann/~1", NAMED):
        await spending.add(session, 100, 0.5)
    assert (await spending.read("api:owner/~3")).tokens == 200
    assert [(await spending.read(one)).tokens for one in ("api:ann/~9", NAMED, "web:owner/a")] == [100, 100, 0]


@pytest.mark.parametrize(
    ("session", "alone"),
    [
        ("api:owner/~abc", True),
        ("api:owner/abc", False),
        ("api:owner/a~b", False),
        ("web:owner/~abc", False),
        ("matrix:~abc", False),
        ("api:~abc", False),
    ],
)
def test_only_the_apis_own_names_are_of_one_request(session: str, alone: bool) -> None:
    """The mark stands where no person can put it."""
    assert is_ephemeral(session) == alone
    assert account_of(session) == ("api:owner/~" if alone else session)
