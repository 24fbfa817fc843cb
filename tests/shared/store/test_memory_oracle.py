"""Random sequences of what happens to a conversation, on the real scripts, against a few lists that say what should."""

from __future__ import annotations

import asyncio
from itertools import count
from typing import Literal

import msgspec
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from shared.messages.transcript import AssistantEntry, TranscriptEntry, UserEntry, decode_transcript
from shared.store import keys
from shared.store.client.redis_client import RedisClient
from shared.store.sessions.memory import MemoryChanged, MemoryStore, MemoryText, Source, Unconsolidated
from shared.store.sessions.transcripts import Transcripts
from tests.helpers.remembering import command, talk

BIG_CHARS = 800_000
"""Two of these fit into a history, a third one pushes the oldest into the archive."""

Op = tuple[Literal["commit", "big", "read", "write", "entry", "new", "forget", "edit"], int, int]
"""What happens, to which of two workers, and how much."""

OPS = st.tuples(
    st.sampled_from(["commit", "commit", "big", "read", "read", "write", "write", "entry", "new", "forget", "edit"]),
    st.integers(0, 3),
    st.integers(1, 6),
)

_chats = count(1)


class Sight(msgspec.Struct):
    """What a worker has read, and means to consolidate."""

    read: Unconsolidated
    memory: MemoryText


class Oracle:
    """Where every entry must be, by its number."""

    def __init__(self) -> None:
        self.lists: dict[Source, list[int]] = {"history": [], "archive": []}
        self.log: list[str] = []
        self.memory = ""
        self.edition = 0
        self.done: list[int] = []
        self.transcript: list[int] = []
        self.forgotten: list[int] = []
        self.dropped: list[int] = []

    def whole(self) -> list[int]:
        """All entries, wherever they are."""
        return sorted([*self.lists["history"], *self.lists["archive"], *self.done, *self.forgotten, *self.dropped])


class World:
    """One chat: real scripts on one side, the oracle on the other."""

    def __init__(self, client: RedisClient) -> None:
        self.chat = f"owner/{next(_chats)}"
        self.session = f"web:{self.chat}"
        self.scope = f"chat:{self.session}"
        self.client = client
        self.memory = MemoryStore(client)
        self.oracle = Oracle()
        self.sights: list[tuple[Sight, int] | None] = [None, None]
        self.numbers = count(1)
        self.made = 0

    async def do(self, op: Op) -> None:
        name, who, much = op
        match name:
            case "commit":
                await self.commit([self.entry() for _ in range(much)])
            case "big":
                await self.commit([self.entry("x" * BIG_CHARS)])
            case "read":
                await self.read(who % 2, "archive" if who > 1 else "history")
            case "write" | "entry":
                await self.write(who % 2, much, with_memory=name == "write")
            case "new":
                await command(self.client, "new", chat=self.chat)
                self.oracle.lists["archive"] += self.oracle.lists["history"]
                self.oracle.lists["history"] = []
            case "forget":
                await command(self.client, "forget", chat=self.chat)
                await self.forgotten()
            case "edit":  # by a turn, or by a rework: both write as they read
                await self.memory.write_memory(
                    self.scope, f"edit {much}", version=(await self.memory.read_memory(self.scope)).version
                )
                self.oracle.memory = f"edit {much}"
                self.oracle.edition += 1

    def entry(self, text: str = "") -> TranscriptEntry:
        self.made = next(self.numbers)
        if self.made % 2:
            return UserEntry(content=f"{self.made} {text}", turn=self.made)
        return AssistantEntry(content=f"{self.made} {text}", turn=self.made)

    async def commit(self, entries: list[TranscriptEntry]) -> None:
        done = await talk(self.client, entries, chat=self.chat)
        history, archive = self.oracle.lists["history"], self.oracle.lists["archive"]
        history += [entry.turn for entry in entries]
        over = len(history) - done.entries
        archive += history[:over]
        del history[:over]
        self.oracle.dropped += archive[: done.dropped]
        del archive[: done.dropped]

    async def read(self, who: int, source: Source) -> None:
        sight = Sight(
            await self.memory.read_unconsolidated(self.session, source), await self.memory.read_memory(self.scope)
        )
        assert sight.memory.text == self.oracle.memory
        self.sights[who] = (sight, self.oracle.edition) if sight.read.entries else None

    async def write(self, who: int, much: int, *, with_memory: bool) -> None:
        """A consolidation whose reading may be of any age."""
        if (seen := self.sights[who]) is None:
            return
        sight, edition = seen
        take = min(much, len(sight.read.entries))
        numbers = [decode_transcript(entry).turn for entry in sight.read.entries]
        entry = ",".join(map(str, numbers[:take]))
        waiting = self.oracle.lists[sight.read.source]
        there = waiting[: len(numbers)] == numbers
        current = edition == self.oracle.edition
        try:
            done = await self.memory.consolidate(
                self.session,
                sight.read,
                take=take,
                entry=entry,
                memory=MemoryText(f"of {entry}", sight.memory.version) if with_memory else None,
            )
        except MemoryChanged:
            assert there
            assert with_memory
            assert not current
            return
        assert done == there
        if done:
            assert current or not with_memory
            self.oracle.done += numbers[:take]
            self.oracle.transcript += numbers[:take]
            del waiting[:take]
            self.oracle.log.append(entry)
            if with_memory:
                self.oracle.memory = f"of {entry}"
            if with_memory or not self.oracle.edition:  # the first entry begins a memory, too
                self.oracle.edition += 1

    async def forgotten(self) -> None:
        oracle = self.oracle
        oracle.forgotten += oracle.lists["history"] + oracle.lists["archive"]
        oracle.lists, oracle.transcript = {"history": [], "archive": []}, []
        if oracle.log or oracle.memory or oracle.edition:
            oracle.edition += 1
        oracle.log, oracle.memory = [], ""

    async def check(self) -> None:
        """Every entry is in exactly one place, and it is the right one."""
        for source in ("history", "archive"):
            assert await self.numbers_in(source) == self.oracle.lists[source]
        assert await self.memory.read_log(self.scope) == self.oracle.log
        assert (await self.memory.read_memory(self.scope)).text == self.oracle.memory
        assert self.oracle.whole() == list(range(1, self.made + 1))
        kept, before = list[int](), ""
        while page := await Transcripts(self.client).read_back(self.session, before, limit=3):
            kept, before = [*(decode_transcript(record).turn for record in page.records), *kept], page.before
            if not before:
                break
        lists = self.oracle.lists
        assert kept == [*self.oracle.transcript, *lists["archive"], *lists["history"]]
        size = sum(map(len, await self.client.command("LRANGE", keys.history(self.session), 0, -1)))
        assert int(await self.client.command("HGET", keys.session(self.session), "history") or 0) == size

    async def numbers_in(self, source: Source) -> list[int]:
        read = await self.memory.read_unconsolidated(self.session, source)
        return [decode_transcript(entry).turn for entry in read.entries]


@example([("commit", 0, 4), ("read", 0, 1), ("read", 1, 1), ("write", 0, 2), ("write", 1, 2)])
@example([("commit", 0, 4), ("read", 0, 1), ("forget", 0, 1), ("commit", 0, 4), ("write", 0, 2)])
@example([("commit", 0, 4), ("read", 0, 1), ("new", 0, 1), ("read", 3, 1), ("write", 1, 6), ("write", 0, 6)])
@example([("big", 0, 1), ("big", 0, 1), ("read", 0, 1), ("big", 0, 1), ("write", 0, 1)])
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(OPS, max_size=25))
def test_every_entry_is_in_one_place_whatever_happens(redis_url: str, ops: list[Op]) -> None:
    """In history, in the archive, in exactly one entry of HISTORY.md, dropped over the cap, or forgotten."""

    async def run() -> None:
        client = RedisClient(redis_url)
        try:
            world = World(client)
            for op in ops:
                await world.do(op)
            await world.check()
        finally:
            await client.close()

    asyncio.run(run())
