"""The scripts of memory and of the agendas, on a real server."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import msgspec
import pytest

from shared.errors import LeaseLost
from shared.ids import nonce
from shared.messages.codec import encode
from shared.messages.transcript import UserEntry, decode_transcript
from shared.store import keys
from shared.store.client.redis_client import RedisClient, Value
from shared.store.schedules.agenda import Agenda, AgendaEntry
from shared.store.sessions.memory import (
    MemoryChanged,
    MemoryLimits,
    MemoryStore,
    MemoryText,
    Unconsolidated,
    UnconsolidatedCounts,
)
from shared.store.turns.inbox import Inbox
from shared.store.turns.queue import LeaseQueue
from tests.helpers.build import say
from tests.helpers.remembering import SCOPE, SESSION, command, fill, plain_turn, talk

HOUR_MS = 3_600_000


async def field(client: RedisClient, key: str, name: str) -> int:
    return int(await client.command("HGET", key, name) or 0)


async def test_entries_become_an_entry_and_a_memory_in_one_step(client: RedisClient) -> None:
    """HISTORY.md, MEMORY.md, mark and history change together; the bytes of history are counted down."""
    memory = MemoryStore(client)
    for n in (1, 2, 3):
        await talk(client, plain_turn(n))
    read = await memory.read_unconsolidated(SESSION)
    assert (len(read.entries), read.total, read.mark, read.scope) == (6, 6, 0, SCOPE)
    assert await memory.consolidate(SESSION, read, take=4, entry="[t] one", memory=MemoryText("- likes tea", "0"))
    assert await memory.read_log(SCOPE) == ["[t] one"]
    assert (await memory.read_memory(SCOPE)).text == "- likes tea"
    after = await memory.read_unconsolidated(SESSION)
    assert after.entries == read.entries[4:]
    assert after.mark == 4
    assert await field(client, keys.session(SESSION), "history") == sum(map(len, after.entries))


async def test_the_same_piece_is_never_consolidated_twice(client: RedisClient) -> None:
    """A worker that died after the script, or whose answer was lost, calls it again: gone already, nothing changes."""
    memory = MemoryStore(client)
    await fill(client, 3)
    read = await memory.read_unconsolidated(SESSION)
    assert await memory.consolidate(SESSION, read, take=2, entry="one")
    assert not await memory.consolidate(SESSION, read, take=2, entry="one")
    assert not await memory.consolidate(SESSION, read, take=4, entry="two", memory=MemoryText("x", "0"))
    assert await memory.read_log(SCOPE) == ["one"]
    assert (await memory.read_memory(SCOPE)).text == ""
    assert (await memory.count_unconsolidated(SESSION)).history == 4


async def test_long_conversations_are_archived_whole_and_in_order(client: RedisClient) -> None:
    """The first one moves as it is, a second one goes behind it; marks and sizes fit."""
    memory = MemoryStore(client)
    for first in (1, 501):
        await fill(client, 500, first=first)
        await command(client, "new")
    read = await memory.read_unconsolidated(SESSION, "archive")
    assert [entry.turn for entry in map(decode_transcript, read.entries)] == [n for n in range(1, 1001) for _ in "qa"]
    assert await memory.count_unconsolidated(SESSION) == UnconsolidatedCounts(0, 2000)
    assert (await memory.read_unconsolidated(SESSION)).mark == 2000


async def test_a_memory_that_was_changed_meanwhile_is_not_overwritten(client: RedisClient) -> None:
    """Compare and swap: the loser gets MemoryChanged, and its piece is still there for another try."""
    memory = MemoryStore(client)
    await fill(client, 2)
    read, old = await memory.read_unconsolidated(SESSION), await memory.read_memory(SCOPE)
    await memory.write_memory(SCOPE, "by hand", version=old.version)
    with pytest.raises(MemoryChanged):
        await memory.consolidate(SESSION, read, take=2, entry="one", memory=MemoryText("mine", old.version))
    assert (await memory.read_memory(SCOPE)).text == "by hand"
    assert await memory.read_log(SCOPE) == []
    assert await memory.consolidate(SESSION, read, take=2, entry="one"), "an entry alone needs no version"
    assert (await memory.read_memory(SCOPE)).text == "by hand"


async def test_a_write_of_memory_names_the_version_it_was_made_from(client: RedisClient) -> None:
    """Versions only grow; the same write again, its answer lost, is the same write."""
    memory = MemoryStore(client)
    first = await memory.write_memory(SCOPE, "one", version="0")
    second = await memory.write_memory(SCOPE, "two", version=first)
    assert int(second) > int(first)
    assert await memory.write_memory(SCOPE, "two", version=first) == second
    with pytest.raises(MemoryChanged, match=first):
        await memory.write_memory(SCOPE, "three", version=first)
    assert await memory.read_memory(SCOPE) == MemoryText("two", second)


async def test_a_turn_that_lost_its_lease_writes_no_memory(client: RedisClient) -> None:
    """MEMORY.md is behind the same fence as everything else a turn writes."""
    memory = MemoryStore(client)
    await say(Inbox(client))
    queue = LeaseQueue(client, "turns", owner=nonce(), lease_s=30)
    [claim] = await queue.acquire(1)
    version = await memory.write_memory(SCOPE, "one", version="0", claim=claim)
    await queue.release(claim)
    with pytest.raises(LeaseLost):
        await memory.write_memory(SCOPE, "two", version=version, claim=claim)
    assert (await memory.read_memory(SCOPE)).text == "one"


async def test_new_moves_the_conversation_and_names_the_archive_on_the_agenda(client: RedisClient) -> None:
    """Nothing is lost between `/new` and its archive job: the sweep finds it."""
    memory = MemoryStore(client)
    await fill(client, 2)
    read = await memory.read_unconsolidated(SESSION)
    await command(client, "new")
    assert not await memory.consolidate(SESSION, read, take=2, entry="late")
    archived = await memory.read_unconsolidated(SESSION, "archive")
    assert archived.entries == read.entries
    assert await memory.count_unconsolidated(SESSION) == UnconsolidatedCounts(0, 4)
    assert [due.member for due in await memory.idle.due()] == [SESSION]
    await fill(client, 1)
    await command(client, "new")
    assert (await memory.read_unconsolidated(SESSION, "archive")).entries[:4] == archived.entries, (
        "behind the older ones"
    )
    assert await memory.consolidate(SESSION, archived, take=4, entry="archived")
    assert (await memory.read_unconsolidated(SESSION, "archive")).mark == 4
    assert await memory.count_unconsolidated(SESSION) == UnconsolidatedCounts(0, 2)


async def test_new_without_a_conversation_leaves_nothing_to_do(client: RedisClient) -> None:
    """The agenda has only those who need something."""
    await talk(client, [], idle_ms=1)
    await command(client, "new")
    assert await MemoryStore(client).idle.find(SESSION) is None


async def test_forget_deletes_everything_and_stops_whoever_began_earlier(client: RedisClient) -> None:
    """Conversation, archive, HISTORY.md and MEMORY.md are gone; late scripts find neither their piece nor their
    version."""
    memory = MemoryStore(client, MemoryLimits())
    await fill(client, 2)
    await command(client, "new")
    await fill(client, 2)
    archived, read = await memory.read_unconsolidated(SESSION, "archive"), await memory.read_unconsolidated(SESSION)
    assert await memory.consolidate(SESSION, read, take=2, entry="e", memory=MemoryText("m", "0"), rework_ms=HOUR_MS)
    read, old = await memory.read_unconsolidated(SESSION), await memory.read_memory(SCOPE)
    await command(client, "forget")
    assert not await memory.consolidate(SESSION, read, take=2, entry="late")
    assert not await memory.consolidate(SESSION, archived, take=2, entry="late", memory=old)
    with pytest.raises(MemoryChanged):
        await memory.write_memory(SCOPE, "late", version=old.version)
    assert (await memory.read_memory(SCOPE)).text == ""
    assert await memory.read_log(SCOPE) == []
    assert await memory.count_unconsolidated(SESSION) == UnconsolidatedCounts(0, 0)
    assert await memory.rework.find(SCOPE) is None
    assert await memory.idle.find(SESSION) is None


class Meddling(RedisClient):
    """Lets somebody else in behind each command of a pipeline: a server owes a pipeline no more than its order."""

    meddle: Callable[[], Awaitable[object]] | None = None

    async def pipeline(self, commands: Sequence[Sequence[Value]]) -> list[Any]:
        answers = []
        for parts in commands:
            answers.append(await self.command(*parts))
            if self.meddle is not None:
                meddle, self.meddle = self.meddle, None
                await meddle()
        return answers


async def test_entries_that_leave_while_a_conversation_is_read_are_not_mistaken_for_others(redis_url: str) -> None:
    """The mark is read before the entries: a piece that another worker took in between fails by its mark."""
    client = Meddling(redis_url)
    try:
        memory = MemoryStore(client)
        entries = await fill(client, 3)
        early = await memory.read_unconsolidated(SESSION)

        async def another_worker() -> None:
            assert await memory.consolidate(SESSION, early, take=2, entry="theirs")

        client.meddle = another_worker
        read = await memory.read_unconsolidated(SESSION)
        assert not await memory.consolidate(SESSION, read, take=2, entry="ours")
        left = (await memory.read_unconsolidated(SESSION)).entries
        assert list(left) == [encode(entry) for entry in entries[2:]]
    finally:
        await client.close()


async def test_the_log_keeps_its_size_by_dropping_its_oldest_entries(client: RedisClient) -> None:
    """At most log_bytes, but always the newest entry, however big; the count is right after the log was lost, too."""
    memory = MemoryStore(client, MemoryLimits(log_bytes=100))
    await fill(client, 8)

    async def add(entry: str) -> None:
        assert await memory.consolidate(SESSION, await memory.read_unconsolidated(SESSION), take=1, entry=entry)

    for letter in "abc":
        await add(letter * 40)
    assert await memory.read_log(SCOPE) == ["b" * 40, "c" * 40]
    assert await field(client, keys.memory(SCOPE), "log") == 80
    await add("d" * 500)
    assert await memory.read_log(SCOPE) == ["d" * 500]
    await client.command("DEL", keys.memlog(SCOPE))
    await add("e")
    assert await field(client, keys.memory(SCOPE), "log") == 1


async def test_memory_outlives_the_chat_but_not_for_ever(client: RedisClient) -> None:
    """Every key has its time to live, counted from the last consolidation."""
    memory = MemoryStore(client, MemoryLimits(keep_days=2))
    await fill(client, 1)
    read = await memory.read_unconsolidated(SESSION)
    await memory.consolidate(SESSION, read, take=2, entry="e", memory=MemoryText("m", "0"))
    for key in (keys.memory(SCOPE), keys.memlog(SCOPE)):
        assert 0 < await client.command("PTTL", key) <= 2 * 86_400_000


async def test_a_consolidation_makes_a_rework_due_once(client: RedisClient) -> None:
    """The first one says when; those that follow do not push it away."""
    memory = MemoryStore(client)
    await fill(client, 2)
    await memory.consolidate(SESSION, await memory.read_unconsolidated(SESSION), take=2, entry="e", rework_ms=HOUR_MS)
    first = await memory.rework.find(SCOPE)
    await memory.consolidate(
        SESSION, await memory.read_unconsolidated(SESSION), take=2, entry="e", rework_ms=2 * HOUR_MS
    )
    assert first is not None
    assert await memory.rework.find(SCOPE) == first
    assert await memory.rework.due() == []


async def test_memory_of_several_chats_can_be_one(client: RedisClient) -> None:
    """The scope of a session is where its conversation goes."""
    memory = MemoryStore(client)
    await fill(client, 1)
    await client.command("HSET", keys.session(SESSION), "scope", "user:web:owner")
    read = await memory.read_unconsolidated(SESSION)
    assert await memory.consolidate(SESSION, read, take=2, entry="e", memory=MemoryText("m", "0"))
    assert (await memory.read_memory("user:web:owner")).text == "m"
    assert (await memory.read_memory(SCOPE)).text == ""


@pytest.mark.parametrize("take", [0, -1, 5])
async def test_only_what_was_read_can_be_consolidated(client: RedisClient, take: int) -> None:
    """A caller's mistake is said before anything is written."""
    await fill(client, 2)
    memory = MemoryStore(client)
    with pytest.raises(ValueError, match=str(take)):
        await memory.consolidate(SESSION, await memory.read_unconsolidated(SESSION), take=take, entry="e")


async def test_a_long_conversation_is_read_in_parts(client: RedisClient) -> None:
    """The oldest ones, and how many there are."""
    await fill(client, 5)
    read = await MemoryStore(client).read_unconsolidated(SESSION, limit=3)
    assert (len(read.entries), read.total) == (3, 10)
    assert isinstance(read, Unconsolidated)
    assert msgspec.msgpack.decode(read.entries[0], type=UserEntry).content == "question 1"


async def test_an_agenda_gives_what_is_due_and_forgets_nothing_that_changed(client: RedisClient) -> None:
    """Settling and putting off name the time they saw."""
    agenda = Agenda(client, keys.IDLE)
    await client.command("ZADD", keys.IDLE, 5, "b", 3, "a", 9_999_999_999_999, "later")
    assert await agenda.due() == [AgendaEntry("a", 3), AgendaEntry("b", 5)]
    assert await agenda.due(1) == [AgendaEntry("a", 3)]
    assert not await agenda.remove(AgendaEntry("a", 4))
    assert not await agenda.put_off(AgendaEntry("gone", 4), HOUR_MS)
    assert await agenda.remove(AgendaEntry("a", 3))
    assert await agenda.put_off(AgendaEntry("b", 5), HOUR_MS)
    assert await agenda.due() == []
    assert await agenda.find("a") is None
    put_off = await agenda.find("b")
    assert put_off is not None
    assert put_off.at_ms > HOUR_MS
