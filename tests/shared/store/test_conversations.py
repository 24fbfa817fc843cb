"""Named sessions that are begun and changed without a turn: each change once, and between two turns."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import pytest

from shared.errors import Refused
from shared.messages.codec import encode
from shared.messages.transcript import TranscriptEntry, UserEntry, decode_transcript
from shared.store import keys
from shared.store.client.redis_client import RedisClient
from shared.store.responses.conversations import Conversations, record_id
from shared.store.schedules.agenda import AgendaEntry
from shared.store.sessions.erase import erase_deleted_chat
from shared.store.sessions.memory import MemoryStore
from shared.store.sessions.requests import ApiRequest
from shared.store.turns.inbox import Inbox, InboxLimits
from shared.store.turns.turn_writes import HISTORY_CAP_BYTES
from tests.shared.store.test_responses import answered, message_of

SESSION = "api:owner/a"
MARK = ("messages of the API",)


def request(ticket: str = "t1") -> ApiRequest:
    return ApiRequest(key="", session=SESSION, ticket=ticket, at_ms=1_700_000_000_000, after=0, new=True)


def texts(*found: str) -> Callable[[int], Sequence[TranscriptEntry]]:
    return lambda turn: [UserEntry(content=one, turn=turn, at=at, sources=MARK) for at, one in enumerate(found)]


async def kept(client: RedisClient, session: str = SESSION) -> list[tuple[str | None, int]]:
    """Text and number of every entry."""
    entries = [decode_transcript(record) for record in await Conversations(client).records(session)]
    return [(entry.content, entry.turn) for entry in entries]


async def begun(client: RedisClient, *found: str) -> Conversations:
    made = Conversations(client)
    assert (await made.begin("owner", request(), SESSION, texts(*found), MARK, {"a": "b"})).outcome == "done"
    return made


async def test_a_conversation_is_a_session_of_its_principal(client: RedisClient) -> None:
    """Listed, with age and metadata; its entries have a number as those of a turn that is over."""
    made = await begun(client, "x", "y")
    details = await made.lookup(SESSION)
    assert details is not None
    assert details.metadata == {"a": "b"}
    assert details.created_at == details.updated_at > 1_700_000_000_000
    assert await client.command("ZRANGE", keys.chats("api", "owner"), 0, -1) == [b"owner/a"]
    assert await kept(client) == [("x", 1), ("y", 1)]
    records = await made.records(SESSION)
    fields = await client.command("HMGET", keys.session(SESSION), "n", "done", "history", "sources")
    assert fields == [b"1", b"1", b"%d" % sum(map(len, records)), MARK[0].encode()]
    for key in (keys.session(SESSION), keys.history(SESSION)):
        assert await client.command("PTTL", key) > 0
    accepted = await Inbox(client).ingest(message_of(request("t2")))
    assert accepted.turn == 2


async def test_an_empty_conversation_is_there(client: RedisClient) -> None:
    """Its first message has the first number, and it is not counted as one more chat."""
    limits = InboxLimits(api_sessions_per_person=1)
    made = Conversations(client, limits)
    assert (await made.begin("owner", request(), SESSION, texts(), (), {})).outcome == "done"
    other = await made.begin("owner", request("t2"), "api:owner/b", texts(), (), {})
    assert other.outcome == "chat_limit"
    assert await made.lookup("api:owner/b") is None
    assert (await Inbox(client, limits).ingest(message_of(request("t3")), principal="owner")).turn == 1


async def test_a_request_adds_once(client: RedisClient) -> None:
    """However often and from wherever it comes; its first number is told again."""
    await begun(client, "x")
    many = [Conversations(client) for _ in range(8)]
    done = await asyncio.gather(*(one.add("owner", request("t2"), SESSION, texts("y"), MARK) for one in many))
    assert sorted(one.outcome for one in done) == ["done"] + ["known"] * 7
    assert {one.number for one in done} == {2}
    assert await kept(client) == [("x", 1), ("y", 2)]
    again = await many[0].begin("owner", request(), SESSION, texts("x"), MARK, {})
    assert (again.outcome, again.number) == ("known", 1)


async def test_many_requests_add_in_some_order(client: RedisClient) -> None:
    """None is lost, and each has a number of its own."""
    made = await begun(client)
    tickets = [f"t{at}" for at in range(2, 7)]
    done = await asyncio.gather(*(made.add("owner", request(one), SESSION, texts(one, one), MARK) for one in tickets))
    assert sorted(one.number for one in done) == [1, 2, 3, 4, 5]
    found = await kept(client)
    assert sorted(found) == sorted((one, added.number) for one, added in zip(tickets, done, strict=True) for _ in "ab")
    assert [number for _, number in found] == sorted(number for _, number in found)


async def test_nothing_is_added_while_a_message_waits_or_without_a_session(client: RedisClient) -> None:
    made = Conversations(client)
    assert (await made.add("owner", request(), SESSION, texts("x"), MARK)).outcome == "no_session"
    await begun(client, "x")
    await Inbox(client).ingest(message_of(request("t2")))
    assert (await made.add("owner", request("t3"), SESSION, texts("y"), MARK)).outcome == "running"
    assert await made.drop(SESSION, (await made.records(SESSION))[0]) == "running"
    await answered(client)
    assert (await made.add("owner", request("t3"), SESSION, texts("y"), MARK)).outcome == "done"
    assert await kept(client) == [("x", 1), ("hello", 1), ("y", 3)]


async def test_what_is_over_the_cap_goes_to_the_archive(client: RedisClient) -> None:
    """As after a turn; it is still read and can still be removed."""
    made = await begun(client)
    for at in range(6):
        big = str(at) * 500_000
        assert (await made.add("owner", request(f"t{at}!"), SESSION, texts(big), MARK)).outcome == "done"
    sizes = await client.command("HMGET", keys.session(SESSION), "history", "archive")
    assert int(sizes[0]) <= HISTORY_CAP_BYTES
    records = await made.records(SESSION)
    assert len(records) == 6
    assert await made.drop(SESSION, records[0]) == "done"
    assert int(await client.command("HGET", keys.session(SESSION), "archive")) == int(sizes[1]) - len(records[0])
    assert await made.records(SESSION) == records[1:]


async def test_a_consolidation_that_read_a_removed_entry_begins_again(client: RedisClient) -> None:
    """It would take the entries after it for those that it has read."""
    made = await begun(client, "x", "y", "z")
    memory = MemoryStore(client)
    read = await memory.read_unconsolidated(SESSION)
    assert await made.drop(SESSION, (await made.records(SESSION))[1]) == "done"
    assert not await memory.consolidate(SESSION, read, take=2, entry="[2026-01-01 00:00] x")
    assert await kept(client) == [("x", 1), ("z", 1)]


@pytest.mark.parametrize("count", ["x", "1"])
async def test_a_wrong_count_of_bytes_begins_again(client: RedisClient, count: str) -> None:
    """It is no number, or less than what leaves: the entry is removed, and no count is negative."""
    made = await begun(client, "x", "y")
    await client.command("HSET", keys.session(SESSION), "history", count)
    assert await made.drop(SESSION, (await made.records(SESSION))[0]) == "done"
    assert await kept(client) == [("y", 1)]
    assert await client.command("HGET", keys.session(SESSION), "history") == b"0"


async def test_nothing_is_removed_from_a_broken_session(client: RedisClient) -> None:
    """A consolidation could not notice it."""
    made = await begun(client, "x", "y")
    records = await made.records(SESSION)
    await client.command("SET", keys.session(SESSION), "x")
    with pytest.raises(Refused):
        await made.drop(SESSION, records[0])
    assert await client.command("LRANGE", keys.history(SESSION), 0, -1) == records


async def test_the_last_entry_leaves_an_empty_conversation(client: RedisClient) -> None:
    made = await begun(client, "x")
    [record] = await made.records(SESSION)
    assert await made.drop(SESSION, record) == "done"
    assert await made.drop(SESSION, record) == "gone"
    assert await client.command("HEXISTS", keys.session(SESSION), "history") == 0
    assert (await made.add("owner", request("t2"), SESSION, texts("y"), MARK)).outcome == "done"
    assert await kept(client) == [("y", 2)]


async def test_metadata_are_replaced(client: RedisClient) -> None:
    """Never of a session that is gone: it would come back without an end."""
    made = await begun(client)
    assert await made.set_metadata(SESSION, {"c": "d"})
    details = await made.lookup(SESSION)
    assert details is not None
    assert details.metadata == {"c": "d"}
    await made.end("owner", SESSION)
    assert not await made.set_metadata(SESSION, {"c": "d"})
    assert await made.lookup(SESSION) is None
    assert await client.command("ZCARD", keys.chats("api", "owner")) == 0


@pytest.mark.parametrize("written", [False, True])
async def test_a_deleted_conversation_that_is_begun_again_is_not_swept(client: RedisClient, written: bool) -> None:
    """A program may choose the same name; the files of the one before are queued at once."""
    made = await begun(client, "x")
    await made.end("owner", SESSION)
    assert await client.command("ZSCORE", keys.EPHEMERAL, SESSION) == b"0"
    jobs = await client.command("ZRANGE", keys.queue("jobs"), 0, -1)
    assert [job.startswith(b"media:") for job in jobs] == [True]
    if written:
        await made.begin("owner", request("t2"), SESSION, texts("y"), MARK, {})
    assert await erase_deleted_chat(client, AgendaEntry(SESSION, 0)) is not written
    assert await kept(client) == ([("y", 1)] if written else [])


def test_an_entry_has_one_id() -> None:
    record = encode(UserEntry(content="x", turn=1))
    assert record_id(record) == record_id(bytes(record))
    assert len(record_id(record)) == 24
