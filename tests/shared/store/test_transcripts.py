"""What leaves a conversation stays readable to its first message: pages of a stream, on a real server."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from itertools import count

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from shared.errors import BadInput, Refused
from shared.messages.codec import encode
from shared.store import keys
from shared.store.client.redis_client import RedisClient
from shared.store.sessions.erase import erase
from shared.store.sessions.memory import MemoryLimits, MemoryStore, Source
from shared.store.sessions.transcripts import PAGE_BYTES, Transcripts, pack_pages, unpack_page
from tests.helpers.remembering import SESSION, command, fill, plain_turn, put, talk, tool_turn


async def read_all(client: RedisClient, limit: int = 50) -> list[bytes]:
    """Everything that is kept of the chat, oldest first."""
    transcripts, found, before = Transcripts(client), list[bytes](), ""
    while True:
        page = await transcripts.read_back(SESSION, before, limit=limit)
        found, before = [*page.records, *found], page.before
        if not before:
            return found


async def consolidate(client: RedisClient, take: int, source: Source = "history", **limits: int) -> bool:
    memory = MemoryStore(client, MemoryLimits(**limits))
    read = await memory.read_unconsolidated(SESSION, source)
    return await memory.consolidate(SESSION, read, take=take, entry="summed up")


async def test_a_consolidated_conversation_is_read_whole_to_its_first_message(client: RedisClient) -> None:
    """With its tool calls and their results, in order, over the borders of transcript, archive and conversation."""
    entries = [entry for n in range(1, 7) for entry in tool_turn(n)]
    await put(client, entries[:16])
    assert await consolidate(client, 4)
    assert await consolidate(client, 4)
    await command(client, "new")
    await put(client, entries[16:])
    assert await consolidate(client, 4, "archive")
    assert await read_all(client, 5) == await read_all(client) == [encode(entry) for entry in entries]
    assert await client.command("XLEN", keys.transcript(SESSION)) == 3


async def test_a_repeated_consolidation_adds_no_page(client: RedisClient) -> None:
    """The page and the removal are one step: of a call whose answer was lost, nothing comes twice."""
    await fill(client, 3)
    memory = MemoryStore(client)
    read = await memory.read_unconsolidated(SESSION)
    assert await memory.consolidate(SESSION, read, take=2, entry="")
    assert not await memory.consolidate(SESSION, read, take=2, entry="")
    assert await client.command("XLEN", keys.transcript(SESSION)) == 1


async def test_entries_over_the_cap_of_a_conversation_are_kept(
    client: RedisClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They wait in the archive for their consolidation, and the sweep knows of it."""
    monkeypatch.setattr("shared.store.turns.turn_writes.HISTORY_CAP_BYTES", 500)
    turns = [plain_turn(n, answer="x" * 60) for n in range(1, 7)]
    assert [(await talk(client, turn)).dropped for turn in turns] == [0] * 6
    records = [encode(entry) for turn in turns for entry in turn]
    waiting = await client.command("LRANGE", keys.archive(SESSION), 0, -1)
    assert len(waiting) > 2
    assert await client.command("HGET", keys.session(SESSION), "archive") == b"%d" % sum(map(len, waiting))
    assert await client.command("ZSCORE", keys.IDLE, SESSION)
    assert await client.command("PTTL", keys.archive(SESSION)) > 0
    assert await read_all(client) == records
    assert await consolidate(client, len(waiting), "archive")
    assert await read_all(client) == records
    assert await client.command("HEXISTS", keys.session(SESSION), "archive") == 0


async def test_an_archive_that_is_full_drops_its_oldest_entries_and_says_so(
    client: RedisClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It holds four conversations; its mark moves, so that no consolidation takes others for what it read."""
    monkeypatch.setattr("shared.store.turns.turn_writes.HISTORY_CAP_BYTES", 100)
    turns = [plain_turn(n, answer="x" * 60) for n in range(1, 9)]
    dropped = sum([(await talk(client, turn)).dropped for turn in turns])
    kept = await read_all(client)
    assert kept == [encode(entry) for turn in turns for entry in turn][dropped:]
    assert 0 < dropped == int(await client.command("HGET", keys.session(SESSION), "archive_mark"))


async def test_a_transcript_keeps_its_size_and_its_newest_page(client: RedisClient) -> None:
    """The oldest pages go first; the count of bytes follows, and begins again with the stream."""
    for n in range(20):
        await put(client, plain_turn(n, text=random.Random(n).randbytes(100).hex()))
        assert await consolidate(client, 2, archive_bytes=1024)
    pages = await client.command("XRANGE", keys.transcript(SESSION), "-", "+")
    size = sum(len(fields[1]) for _, fields in pages)
    assert 1 < len(pages) < 20
    assert 500 < size <= 1024
    assert await client.command("HGET", keys.session(SESSION), "transcript") == b"%d" % size
    assert (await read_all(client))[-1] == encode(plain_turn(19)[1])
    await put(client, plain_turn(20))
    assert await consolidate(client, 2, archive_bytes=1)
    assert await client.command("XLEN", keys.transcript(SESSION)) == 1
    await client.command("DEL", keys.transcript(SESSION))
    await put(client, plain_turn(21))
    assert await consolidate(client, 2)
    [(_, (_, page))] = await client.command("XRANGE", keys.transcript(SESSION), "-", "+")
    assert await client.command("HGET", keys.session(SESSION), "transcript") == b"%d" % len(page)


async def test_old_pages_go_and_without_days_nothing_is_kept(client: RedisClient) -> None:
    """A page goes with the first write after its time, the last ones by themselves."""
    [old] = pack_pages([encode(plain_turn(1)[0])])
    await client.command("XADD", keys.transcript(SESSION), "1000-0", "z", old)
    await client.command("HSET", keys.session(SESSION), "transcript", len(old))
    await fill(client, 2)
    assert await consolidate(client, 2, archive_days=0)
    assert await client.command("XLEN", keys.transcript(SESSION)) == 1
    assert await consolidate(client, 2, archive_days=7)
    [(_, (_, page))] = await client.command("XRANGE", keys.transcript(SESSION), "-", "+")
    assert unpack_page((b"", (b"z", page))) == [encode(entry) for entry in plain_turn(2)]
    assert await client.command("HGET", keys.session(SESSION), "transcript") == b"%d" % len(page)
    assert 6.9 < await client.command("PTTL", keys.transcript(SESSION)) / 86_400_000 <= 7


async def test_forgetting_and_erasing_leave_no_transcript(client: RedisClient) -> None:
    """Neither its pages nor its count of bytes; `/new` keeps both."""
    await fill(client, 4)
    assert await consolidate(client, 4)
    await command(client, "new")
    assert len(await read_all(client)) == 8
    await command(client, "forget")
    assert await read_all(client) == []
    assert await client.command("HEXISTS", keys.session(SESSION), "transcript") == 0
    await fill(client, 4)
    assert await consolidate(client, 4)
    await erase(client, SESSION)
    assert await client.command("EXISTS", keys.transcript(SESSION)) == 0


async def test_a_broken_transcript_stops_a_consolidation_before_it_takes_anything(client: RedisClient) -> None:
    """A script has no rollback: no entry may leave the conversation without a place to go."""
    await fill(client, 2)
    await client.command("SET", keys.transcript(SESSION), "broken")
    with pytest.raises(Refused):
        await consolidate(client, 2)
    assert await client.command("LLEN", keys.history(SESSION)) == 4
    await client.command("DEL", keys.transcript(SESSION))
    await client.command("XADD", keys.transcript(SESSION), "*", "z", "broken")
    await client.command("XADD", keys.transcript(SESSION), "*", "other", "broken")
    assert await consolidate(client, 2)
    assert await read_all(client) == [encode(entry) for n in (1, 2) for entry in plain_turn(n)]


@pytest.mark.parametrize("before", ["x", "@", "1-0", "@0123456789abcdeg", "+.", "1-0.1\n"])
async def test_a_wrong_place_is_refused(client: RedisClient, before: str) -> None:
    """And one of a page that went since says that there is nothing before it."""
    with pytest.raises(BadInput):
        await Transcripts(client).read_back(SESSION, before)
    assert (await Transcripts(client).read_back(SESSION, "5-0.7")).before == ""
    assert (await Transcripts(client).read_back(SESSION, "@0123456789abcdef")).before == ""


@given(sizes=st.lists(st.integers(0, PAGE_BYTES + 10), max_size=12))
@settings(max_examples=30)
def test_pages_hold_every_record_in_order(sizes: Sequence[int]) -> None:
    """None is larger than it may be, except for one record that is."""
    records = [b"%d" % at + b"x" * size for at, size in enumerate(sizes)]
    pages = [unpack_page((b"", (b"z", page))) for page in pack_pages(records)]
    assert [record for page in pages for record in page] == records
    assert all(len(page) == 1 or sum(map(len, page)) <= PAGE_BYTES for page in pages)


STEPS = st.lists(
    st.tuples(st.sampled_from(["put", "consolidate", "archive", "new", "read"]), st.integers(1, 9)), max_size=30
)


@example([("put", 9), ("read", 2), ("consolidate", 9), ("consolidate", 9)])
@example([("put", 9), ("read", 2), ("new", 1), ("archive", 9), ("put", 3), ("read", 1), ("archive", 9)])
@example([("put", 9), ("consolidate", 9), ("put", 2), ("read", 5), ("read", 1), ("consolidate", 4), ("read", 1)])
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=STEPS)
def test_reading_backwards_misses_and_repeats_nothing_whatever_happens_meanwhile(
    redis_url: str, steps: list[tuple[str, int]]
) -> None:
    """Exactly what there was at the first page, in order, although entries leave for the transcript in between."""

    async def run() -> None:
        client = RedisClient(redis_url)
        try:
            await erase(client, SESSION)
            await read_while(client, steps)
        finally:
            await client.close()

    asyncio.run(run())


async def read_while(client: RedisClient, steps: list[tuple[str, int]]) -> None:
    transcripts, memory = Transcripts(client), MemoryStore(client)
    numbers, there, first, found, before = count(1), list[bytes](), list[bytes](), list[bytes](), "?"
    for name, much in [*steps, ("read", 3)]:
        waiting = await memory.count_unconsolidated(SESSION)
        match name:
            case "put":
                entries = [entry for _ in range(much) for entry in plain_turn(next(numbers))]
                await put(client, entries)
                there += map(encode, entries)
            case "archive" if waiting.archive:
                assert await consolidate(client, min(much, waiting.archive), "archive")
            case "consolidate" if waiting.history and not waiting.archive:  # the archive first, as the jobs have it
                assert await consolidate(client, min(much, waiting.history))
            case "new":
                await command(client, "new")
            case "read" if before:
                before = "" if before == "?" else before
                first = first if before else list(there)
                page = await transcripts.read_back(SESSION, before, limit=much)
                found, before = [*page.records, *found], page.before
    while before:
        page = await transcripts.read_back(SESSION, before, limit=4)
        found, before = [*page.records, *found], page.before
    assert found == first
