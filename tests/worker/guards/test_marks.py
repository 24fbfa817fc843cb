"""Marks: which labels they have, and when a workspace gets and gives them."""

from __future__ import annotations

import asyncio

import pytest

from shared.errors import RedisAway
from shared.messages.sources import LABEL_CHARS, SOURCES_CAP, Sources, merge_sources, pack_sources, source_label
from shared.messages.transcript import ToolEntry
from shared.store import keys
from shared.store.client.redis_client import RedisClient
from shared.store.sessions.workspace_marks import WorkspaceMarks
from worker.guards.marks import TurnMark, WorkspaceMark

SESSION = "web:owner/a"


class CountingMarks(WorkspaceMarks):
    """A store in memory that counts, and is unavailable when told so."""

    def __init__(self) -> None:
        self.marks: Sources = ()
        self.reads = self.writes = 0
        self.away = False

    async def read(self, session: str, folder: str = "") -> Sources:
        if self.away:
            raise RedisAway
        self.reads += 1
        return self.marks

    async def add(self, session: str, sources: Sources, folder: str = "") -> None:
        self.writes += 1
        self.marks = merge_sources(self.marks, sources)


@pytest.mark.parametrize("text", ["a\nb", "a\0b", "a\u202eb", " a  b\t"])
def test_a_label_is_one_visible_line(text: str) -> None:
    assert source_label(text) == "a b"
    assert len(source_label(text * 100)) <= LABEL_CHARS


async def test_marks_in_the_store_merge_and_stay_within_their_limit(client: RedisClient) -> None:
    """In the order in which they came, each once, also one that is a part of another."""
    store = WorkspaceMarks(client)
    await store.add(SESSION, ("a.example",))
    assert await store.read(SESSION) == (), "nothing is created for a session that is gone"
    await client.command("HSET", keys.session(SESSION), "n", "1")
    marks = [("a.example.b",), ("a.example", "a.example.b"), (), tuple(f"{n}.example" for n in range(9)), ("late",)]
    for mark in marks:
        await store.add(SESSION, mark)
    assert await store.read(SESSION) == merge_sources(*marks)
    assert pack_sources(await store.read(SESSION)).count("\n") == SOURCES_CAP - 1


async def test_a_search_through_many_files_asks_the_store_once() -> None:
    """Behind the last of them; nothing was read, nothing is asked."""
    store, turn = CountingMarks(), TurnMark()
    mark = WorkspaceMark(turn, store, SESSION)
    await mark.settle()
    for _ in range(100):
        mark.note_read()
    store.marks = ("evil.example",)
    await mark.settle()
    assert (turn.sources, store.reads) == (("evil.example",), 1)


async def test_what_was_not_answered_is_asked_again() -> None:
    """Text without its mark never gets into a record."""
    store, turn = CountingMarks(), TurnMark()
    mark = WorkspaceMark(turn, store, SESSION)
    mark.note_read()
    store.away = True
    with pytest.raises(RedisAway):
        await mark.settle()
    store.away, store.marks = False, ("evil.example",)
    await mark.settle()
    assert turn.sources == ("evil.example",)


async def test_calls_beside_each_other_all_wait_for_the_mark() -> None:
    """The first one to end asks the store for all of them; none may go on before the answer."""

    class SlowMarks(CountingMarks):
        answered = asyncio.Event()

        async def read(self, session: str, folder: str = "") -> Sources:
            await self.answered.wait()
            return await super().read(session, folder)

    store, turn = SlowMarks(), TurnMark()
    store.marks = ("evil.example",)
    mark, known = WorkspaceMark(turn, store, SESSION), list[Sources]()

    async def one() -> None:
        await mark.settle()
        known.append(turn.sources)

    for _ in range(2):
        mark.note_read()
    async with asyncio.TaskGroup() as calls:
        for _ in range(2):
            calls.create_task(one())
        await asyncio.sleep(0)
        store.answered.set()
    assert known == [("evil.example",)] * 2


async def test_a_workspace_is_marked_before_each_write() -> None:
    """What it reads there, another call of the same turn may write elsewhere; /trust may come in between."""
    store, turn = CountingMarks(), TurnMark(("chat.example",))
    mark = WorkspaceMark(turn, store, SESSION)
    await mark.before_write()
    assert store.marks == ("chat.example",)
    store.marks = tuple[str, ...]()
    turn.add(["evil.example"])
    for _ in range(2):
        await mark.before_write()
        assert store.marks == ("chat.example", "evil.example")
        store.marks = tuple[str, ...]()


async def test_a_turn_that_read_nothing_of_strangers_writes_without_asking_the_store() -> None:
    store = CountingMarks()
    await WorkspaceMark(TurnMark(), store, SESSION).before_write()
    assert (store.reads, store.writes) == (0, 0)


def test_a_turn_tells_what_it_read_itself_and_what_its_ledger_lacks() -> None:
    """The chat's mark may be cleared meanwhile; what the turn read again must come back."""
    turn = TurnMark(("old", "both"))
    turn.add(["both", "new"])
    assert (turn.sources, turn.own) == (("old", "both", "new"), ("both", "new"))
    assert (turn.pop_unwritten(), turn.pop_unwritten()) == (("both", "new"), ())
    turn.add_ledger([ToolEntry(call_id="c", name="x", content="", turn=1, sources=("earlier",))])
    assert turn.own == ("both", "new", "earlier")
