"""`shoal session`: what an operator sees, keeps and forgets of a conversation."""

from __future__ import annotations

import asyncio
import json
import re
import stat
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import pytest
from click.testing import CliRunner, Result

from console.main import cli
from shared.clock import SYSTEM_CLOCK
from shared.errors import BadInput, LeaseLost
from shared.ids import log_id, nonce
from shared.messages.live import TurnEvent
from shared.messages.outbound import OutboundMessage
from shared.messages.transcript import AssistantEntry, ToolCall, ToolEntry, TranscriptEntry, UserEntry
from shared.settings import load
from shared.store import keys
from shared.store.access.audit import Audit
from shared.store.client.redis_client import RedisClient, Value
from shared.store.client.scripts import Script
from shared.store.delivery.fanout import ChatNews, Fanout
from shared.store.delivery.outbox import Outbox
from shared.store.fleet.spenders import top_spenders
from shared.store.fleet.spending import Spending
from shared.store.jobs.jobs import Jobs
from shared.store.sessions import erase
from shared.store.sessions.backup import RestoreConflict, SessionBackup, SessionChanged, read_file
from shared.store.sessions.details import change_metadata
from shared.store.sessions.listing import list_sessions, row_of
from shared.store.sessions.memory import MemoryChanged, MemoryStore, MemoryText
from shared.store.sessions.session import Sessions
from shared.store.turns.inbox import TURNS, Inbox, InboxLimits
from shared.store.turns.queue import Claim, LeaseQueue
from shared.store.turns.turn_writes import DeadLetter, Turns
from tests.helpers.build import message, reply, say
from tests.helpers.wait import eventually

SESSION = "web:owner/a"
SCOPE = f"chat:{SESSION}"
TOOLS = (
    AssistantEntry(content=None, turn=1, tool_calls=(ToolCall("c1", "roll_dice", '{"sides":6}'),)),
    ToolEntry(call_id="c1", name="roll_dice", content="4", turn=1),
)

T = TypeVar("T")
Shoal = Callable[..., Result]


async def claim_one(client: RedisClient) -> Claim:
    queue = LeaseQueue(client, TURNS, owner="hand", lease_s=15)
    [claim] = await queue.acquire(1)
    await queue.close()
    return claim


async def talk(client: RedisClient, text: str = "hello", *, chat: str = "owner/a", dead: bool = False) -> None:
    """A message and its answer, with a tool in between; perhaps given up."""
    await say(Inbox(client), text, chat=chat)
    claim = await claim_one(client)
    assert claim.turn is not None
    n = claim.turn.n
    entries: list[TranscriptEntry] = [
        UserEntry(content=text, turn=n), *TOOLS, AssistantEntry(content=f"about {text}", turn=n)
    ]  # fmt: skip
    letter = DeadLetter("error 0000cafe", claim.turn.record) if dead else None
    limits = InboxLimits(idle_ms=900_000)
    await Turns(client, limits).commit(
        claim, history=entries, lines=[reply(f"about {text}", n)], event=TurnEvent(n, "done"), dead=letter
    )


async def remember(client: RedisClient, text: str = "Likes tea.", scope: str = SCOPE) -> None:
    store = MemoryStore(client)
    await store.write_memory(scope, text, version=(await store.read_memory(scope)).version)


async def lived(client: RedisClient) -> None:
    """A session with everything that one can have: HISTORY.md, MEMORY.md, a conversation, an archive, a log."""
    store = MemoryStore(client)
    await talk(client, "one")
    read = await store.read_unconsolidated(SESSION)
    await store.consolidate(
        SESSION, read, take=4, entry="[2026-01-01 10:00] One.", memory=MemoryText("Likes tea.", "0"), rework_ms=1000
    )
    await talk(client, "two")
    sessions = Sessions(client)
    await sessions.answer_command(
        message("/new"), OutboundMessage(content="New.", turn=0), await sessions.state(SESSION), change="new"
    )
    await talk(client, "three")
    await sessions.answer_command(
        message("/model fast"),
        OutboundMessage(content="Fast.", turn=0),
        await sessions.state(SESSION),
        change="preset",
        preset="fast",
    )


async def everything(client: RedisClient) -> set[str]:
    """Which keys of the whole store know the session, by their name or in what they hold; neighbours do not count."""
    known = re.compile(r"owner/a(?:/m\d+|/forget-\w+)?(?![\w/*])")
    found: set[str] = set()
    for key in await client.command("KEYS", "*"):
        kind = (await client.command("TYPE", key)).decode()
        read: dict[str, tuple[str | int, ...]] = {
            "string": ("GET", key),
            "hash": ("HGETALL", key),
            "list": ("LRANGE", key, 0, -1),
            "zset": ("ZRANGE", key, 0, -1),
            "stream": ("XRANGE", key, "-", "+"),
        }
        if known.search(f"{key.decode()} {await client.command(*read[kind])!r}"):
            found.add(key.decode())
    return found


# The store.


async def test_the_list_has_the_latest_first(client: RedisClient) -> None:
    """Whatever was said last, and how each stands."""
    await talk(client, chat="owner/old")
    an_hour_ago = SYSTEM_CLOCK.now_ms() - 3_600_000
    await client.command("HSET", keys.session("web:owner/old"), "updated", an_hour_ago)
    await talk(client, chat="owner/new")
    await say(Inbox(client), chat="owner/new")
    await claim_one(client)
    found = await list_sessions(client)
    assert [row.session for row in found.rows] == ["web:owner/new", "web:owner/old"]
    new, old = found.rows
    assert (new.channel, new.messages, new.waiting, new.running, new.entries) == ("web", 2, 1, True, 4)
    assert (old.messages, old.waiting, old.running, old.preset) == (1, 0, False, "")
    assert old.idle_s == pytest.approx(3600, abs=30)
    assert (found.total, found.whole) == (2, True)
    # The time is that of the server, which may be ahead of ours by some milliseconds.
    assert abs(SYSTEM_CLOCK.now_ms() - new.details.created_at) < 60_000
    assert new.details.created_at <= new.details.updated_at
    assert old.details.updated_at == an_hour_ago

    # A session of an older release has neither: its time to live tells roughly how old it is.
    await client.command("HDEL", keys.session("web:owner/old"), "updated", "created")
    await client.command("PEXPIRE", keys.session("web:owner/old"), InboxLimits().session_days * 86_400_000 - 7_200_000)
    _, old = (await list_sessions(client)).rows
    assert old.idle_s == pytest.approx(7200, abs=30)
    assert (old.details.created_at, old.details.updated_at) == (0, 0)
    await say(Inbox(client), chat="owner/old")
    assert (await row_of(client, "web:owner/old")).details.created_at == 0, "its age is not made up"


async def test_metadata_is_changed_within_its_bounds(client: RedisClient) -> None:
    """Texts by name, merged with what is there; nothing that is too big or no text is kept, nor for nobody."""
    assert not await change_metadata(client, SESSION, {"a": "b"})
    assert await client.command("DBSIZE") == 0
    await talk(client)
    assert await change_metadata(client, SESSION, {"customer": "4711", "stage": "first / \u00e4"})
    assert await change_metadata(client, SESSION, {"stage": "", "plan": "big"})
    await talk(client, "again")
    details = (await row_of(client, SESSION)).details
    assert details.metadata == {"customer": "4711", "plan": "big"}
    for wrong in ({"": "x"}, {"a=b": "x"}, {"a\n": "x"}, {"x" * 65: "y"}, {"x": "y" * 4097}, {"x": "\ud800"}):
        with pytest.raises(BadInput):
            await change_metadata(client, SESSION, wrong)
    assert await change_metadata(client, SESSION, {"long": "y" * 4000})
    with pytest.raises(BadInput, match="more than 4,096 bytes"):
        await change_metadata(client, SESSION, {"more": "y" * 100})
    await client.command("HSET", keys.session(SESSION), "meta", b"\xff{")
    assert (await row_of(client, SESSION)).details.metadata == {}
    assert await change_metadata(client, SESSION, {"a": "b"})
    assert await change_metadata(client, SESSION, {"a": ""})
    assert await client.command("HEXISTS", keys.session(SESSION), "meta") == 0


async def test_the_chats_that_cost_most_today_come_first(client: RedisClient, redis_url: str) -> None:
    """Then those with most tokens, whatever the model's price; what was used yesterday is not in it."""
    spending = Spending(client)
    used = (("web:owner/a", 10, 0.5), ("api:bob/b", 900, 0.0), ("web:anna/c", 5, 2.25), ("web:d/e", 1, 0.0))
    for name, tokens, usd in used:
        day = (await spending.add(name, tokens, usd)).day
    await client.command("HSET", keys.spent("web:owner/old", day - 1), "tokens", 1, "micros", 9_000_000)
    assert [(one.session, one.tokens, one.usd) for one in await top_spenders(client, 3)] == [
        ("web:anna/c", 5, 2.25),
        ("web:owner/a", 10, 0.5),
        ("api:bob/b", 900, 0.0),
    ]
    found = await asyncio.to_thread(
        CliRunner().invoke, cli, ["session", "spent", "--json", "--limit", "1"], env={"SHOAL_REDIS__URL": redis_url}
    )
    assert json.loads(found.stdout) == {"spent": [{"session": "web:anna/c", "tokens": 5, "usd": 2.25}]}


async def test_the_list_is_filtered_by_a_part_of_the_name_or_its_hash(client: RedisClient) -> None:
    """A line of the log leads to its session."""
    for chat in ("owner/tea time", "owner/b", "anna/c"):
        await say(Inbox(client), chat=chat)
    assert [row.session for row in (await list_sessions(client, match="tea time")).rows] == ["web:owner/tea%20time"]
    hashed = await list_sessions(client, match=log_id("web:anna/c"))
    assert [row.session for row in hashed.rows] == ["web:anna/c"]
    assert (await list_sessions(client, match="nobody")).total == 0
    two = await list_sessions(client, limit=2)
    assert (len(two.rows), two.total) == (2, 3)


async def test_a_list_of_many_tells_how_far_it_is(client: RedisClient) -> None:
    """More than one batch of names, and as many pages of keys as the server makes of them: it ends at the whole."""
    pipe = [("HSET", keys.session(f"web:owner/{i}"), "n", 1) for i in range(2500)]
    await client.pipeline(pipe)
    events: list[tuple[int, int]] = []
    found = await list_sessions(client, limit=1000, on_progress=lambda done, total: events.append((done, total)))
    assert (len(found.rows), found.total) == (1000, 2500)
    assert events[-1] == (2500, 2500)
    assert events == sorted(events)
    assert found.rows[0].idle_s is None, "a key without a time to live says nothing"


async def test_what_was_exported_is_restored_elsewhere(client: RedisClient) -> None:
    """Memory, conversation and what is not in memory yet: the same records, so that the model sees the same."""
    await lived(client)
    await change_metadata(client, SESSION, {"customer": "4711"})
    backup = SessionBackup(client, load({}))
    file = await backup.export(SESSION, now_ms=5)
    assert 0 < file.created_at <= file.updated_at
    assert file.metadata == {"customer": "4711"}
    assert (file.memory_md, file.history_md) == ("Likes tea.", ("[2026-01-01 10:00] One.",))
    assert file.conversation is not None
    assert file.archive is not None
    assert file.log is not None
    assert [len(file.conversation), len(file.archive), len(file.transcript or ())] == [4, 4, 4]
    assert [entry.seq for entry in file.log] == list(range(1, 9))
    before = [await client.command("LRANGE", key(SESSION), 0, -1) for key in (keys.history, keys.archive)]
    again = read_file(msgspec.json.encode(file))
    assert again == file

    await backup.restore(again, "web:anna/b")
    after = [await client.command("LRANGE", key("web:anna/b"), 0, -1) for key in (keys.history, keys.archive)]
    assert after == before
    store = MemoryStore(client)
    assert (await store.read_memory("chat:web:anna/b")).text == "Likes tea."
    assert await store.read_log("chat:web:anna/b") == ["[2026-01-01 10:00] One."]
    copy = await backup.export("web:anna/b", now_ms=5)
    assert copy.log == (), "what people see is not made up"
    assert msgspec.structs.replace(copy, session=SESSION, scope=SCOPE, log=file.log) == file


async def test_a_conversation_is_read_backwards_to_its_first_message(client: RedisClient, shoal: Shoal) -> None:
    """As lines with time, role and tools; the place at the end leads on."""
    await lived(client)
    first = await asyncio.to_thread(shoal, "read", SESSION, "--limit", "10")
    assert first.exit_code == 0, first.output
    assert "USER" in first.stdout
    place = first.stderr.split("--before ")[1].strip()
    rest = json.loads((await asyncio.to_thread(shoal, "read", SESSION, "--before", place, "--json")).stdout)
    assert (len(rest["entries"]), rest["before"]) == (2, "")


async def test_a_restored_conversation_goes_on(client: RedisClient) -> None:
    """The next turn gets it as its history; sizes and marks are right for trimming and consolidation."""
    await lived(client)
    backup = SessionBackup(client, load({}))
    await backup.restore(await backup.export(SESSION, now_ms=5), "web:anna/b")
    assert await client.command("ZSCORE", keys.IDLE, "web:anna/b"), "the sweep finds the archive"
    await say(Inbox(client), "hello", chat="anna/b")
    claim = await claim_one(client)
    assert claim.turn is not None
    assert len(claim.turn.history) == 4
    assert claim.turn.memory == "Likes tea."
    sizes = [len(entry) for entry in claim.turn.history]
    assert int(await client.command("HGET", keys.session("web:anna/b"), "history")) == sum(sizes)
    store = MemoryStore(client)
    read = await store.read_unconsolidated("web:anna/b")
    assert await store.consolidate("web:anna/b", read, take=4, entry="[2026-01-02 10:00] Three.")
    assert len(await store.read_log("chat:web:anna/b")) == 2
    size = int(await client.command("HGET", keys.memory("chat:web:anna/b"), "log"))
    assert size == sum(len(entry) for entry in await store.read_log("chat:web:anna/b"))


async def test_a_mark_of_strangers_text_survives_a_restore(client: RedisClient) -> None:
    """The chat and the memory are marked over there, and what is replaced leaves no mark of its own."""
    marked = UserEntry(content="what does it say?", turn=1, sources=("evil.example",))
    await say(Inbox(client), "hello")
    await Turns(client).commit(
        await claim_one(client), history=[marked], lines=[], event=TurnEvent(1, "done"), sources=("evil.example",)
    )
    store, backup = MemoryStore(client), SessionBackup(client, load({}))
    await store.write_memory(SCOPE, "Do it.", version="0", sources=("mail of x",))
    await store.write_memory("chat:web:anna/b", "Old.", version="0", sources=("old.example",))
    file = read_file(msgspec.json.encode(await backup.export(SESSION, now_ms=5)))
    await backup.restore(file, "web:anna/b", replace=True)
    assert (await store.read_memory("chat:web:anna/b")).sources == ("mail of x",)
    await say(Inbox(client), "and now?", chat="anna/b")
    claim = await claim_one(client)
    assert claim.turn is not None
    assert (claim.turn.sources, claim.turn.memory_sources) == (("evil.example",), ("mail of x",))


async def test_a_replaced_conversation_is_not_consolidated_by_who_read_the_old_one(client: RedisClient) -> None:
    """The marks have moved on; MEMORY.md has another version."""
    await talk(client, "one")
    await remember(client, "old")
    store = MemoryStore(client)
    read, text = await store.read_unconsolidated(SESSION), await store.read_memory(SCOPE)
    backup = SessionBackup(client, load({}))
    await backup.restore(await backup.export(SESSION, now_ms=5), SESSION, replace=True)
    assert not await store.consolidate(SESSION, read, take=4, entry="doubled")
    assert await client.command("LLEN", keys.history(SESSION)) == 4
    with pytest.raises(MemoryChanged):
        await store.write_memory(SCOPE, "stale", version=text.version)
    assert (await Sessions(client).state(SESSION)).generation == 1


async def test_what_was_archived_is_replaced_with_its_mark(client: RedisClient) -> None:
    """The job that reads the old archive brings nothing of it into the new memory."""
    await lived(client)
    store = MemoryStore(client)
    read = await store.read_unconsolidated(SESSION, "archive")
    backup = SessionBackup(client, load({}))
    await backup.restore(await backup.export(SESSION, now_ms=5), SESSION, replace=True)
    assert not await store.consolidate(SESSION, read, take=4, entry="doubled")
    assert await client.command("LLEN", keys.archive(SESSION)) == 4


async def test_a_conversation_alone_is_something_too(client: RedisClient) -> None:
    """Also one that is only archived; without anything there is nothing to force."""
    await lived(client)
    backup = SessionBackup(client, load({}))
    file = await backup.export(SESSION, now_ms=5)
    await client.command("DEL", keys.memory(SCOPE), keys.memlog(SCOPE))
    for kept in (keys.history, keys.archive):
        other = keys.archive if kept is keys.history else keys.history
        await backup.restore(file, "web:anna/b", replace=True)
        await client.command("DEL", other("web:anna/b"), keys.memory("chat:web:anna/b"), keys.memlog("chat:web:anna/b"))
        with pytest.raises(RestoreConflict):
            await backup.restore(file, "web:anna/b")
        assert (await MemoryStore(client).read_memory("chat:web:anna/b")).text == ""


async def test_what_is_restored_is_looked_after_and_ends_some_day(client: RedisClient) -> None:
    """It is due for idle consolidation and for a rework as if it had been written here, and every key has an end."""
    await talk(client, "one")
    await remember(client)
    await client.command("RPUSH", keys.memlog(SCOPE), "[2026-01-01 10:00] One.")
    backup = SessionBackup(client, load({"SHOAL_MEMORY__REWORK_H": "24"}))
    await backup.restore(await backup.export(SESSION, now_ms=5), "web:anna/b")
    seconds = int((await client.command("TIME"))[0])
    idle = float(await client.command("ZSCORE", keys.IDLE, "web:anna/b")) / 1000 - seconds
    rework = float(await client.command("ZSCORE", keys.REWORK, "chat:web:anna/b")) / 1000 - seconds
    assert idle == pytest.approx(900, abs=10)
    assert rework == pytest.approx(24 * 3600, abs=10)
    for key in await client.command("KEYS", "*web:anna/b"):
        assert await client.command("PTTL", key) > 0, key


async def test_an_archive_that_is_restored_is_due_for_memory_at_once(client: RedisClient) -> None:
    """It had waited already where it was."""
    await lived(client)
    file = await SessionBackup(client, load({})).export(SESSION, now_ms=5)
    assert file.archive
    await SessionBackup(client, load({"SHOAL_MEMORY__IDLE_S": "0"})).restore(file, "web:anna/b")
    seconds = int((await client.command("TIME"))[0])
    due = float(await client.command("ZSCORE", keys.IDLE, "web:anna/b")) / 1000
    assert due == pytest.approx(seconds, abs=10)


class Between(RedisClient):
    """Does something before the first call whose first word is `word`, as somebody else could."""

    def __init__(self, url: str, word: str, work: Callable[[], Awaitable[object]]) -> None:
        super().__init__(url)
        self._word = word
        self._work: Callable[[], Awaitable[object]] | None = work

    async def command(self, *parts: Any) -> Any:
        await self._before(parts[0])
        return await super().command(*parts)

    async def evaluate(self, script: Script, call: tuple[Value, ...]) -> Any:
        await self._before(script.name)
        return await super().evaluate(script, call)

    async def _before(self, word: str) -> None:
        if word == self._word and self._work is not None:
            work, self._work = self._work, None
            await work()


async def test_a_session_that_changes_while_its_pages_are_read_is_read_again(
    client: RedisClient, redis_url: str
) -> None:
    """An export is of one moment, though it comes in pages."""
    await lived(client)
    between = Between(redis_url, "XRANGE", lambda: talk(client))
    try:
        file = await SessionBackup(between, load({})).export(SESSION, now_ms=5)
    finally:
        await between.close()
    assert file == await SessionBackup(client, load({})).export(SESSION, now_ms=5)


async def test_a_restore_whose_upload_is_lost_writes_nothing(client: RedisClient, redis_url: str) -> None:
    """Uploads expire, and none is left behind, whether they were used or not."""
    await lived(client)
    file = await SessionBackup(client, load({})).export(SESSION, now_ms=5)

    async def lose() -> None:
        uploads = await client.command("KEYS", keys.upload("*"))
        assert 0 < min([await client.command("PTTL", key) for key in uploads]) <= 600_000
        await client.command("DEL", uploads[0])

    between = Between(redis_url, "sessions/restore", lose)
    try:
        with pytest.raises(SessionChanged):
            await SessionBackup(between, load({})).restore(file, "web:anna/b")
        assert await client.command("KEYS", "*web:anna/b*") == []
        assert await client.command("KEYS", keys.upload("*")) == []
        await SessionBackup(between, load({})).restore(file, "web:anna/b")
    finally:
        await between.close()
    assert await client.command("KEYS", keys.upload("*")) == []
    again = await SessionBackup(client, load({})).export("web:anna/b", now_ms=5)
    assert (again.conversation, again.archive, again.history_md) == (file.conversation, file.archive, file.history_md)


@pytest.mark.parametrize("changed", ["memory", "n", "gen", "mark", "archive_mark"])
async def test_a_restore_that_meets_a_change_writes_nothing(client: RedisClient, redis_url: str, changed: str) -> None:
    """Compare and swap: on everything that was read."""

    class Meddling(RedisClient):
        """Somebody writes MEMORY.md, or something happens in the session, between reading and restoring."""

        async def evaluate(self, script: Script, call: tuple[Value, ...]) -> Any:
            if script.name == "sessions/restore":
                if changed == "memory":
                    await remember(client, "in between", "chat:web:anna/b")
                else:
                    await client.command("HSET", keys.session("web:anna/b"), changed, 7)
            return await super().evaluate(script, call)

    await lived(client)
    file = await SessionBackup(client, load({})).export(SESSION, now_ms=5)
    meddling = Meddling(redis_url)
    try:
        with pytest.raises(SessionChanged):
            await SessionBackup(meddling, load({})).restore(file, "web:anna/b", replace=True)
    finally:
        await meddling.close()
    assert (await MemoryStore(client).read_memory("chat:web:anna/b")).text == (
        "in between" if changed == "memory" else ""
    )
    assert await client.command("EXISTS", keys.history("web:anna/b")) == 0


async def test_a_restore_goes_where_the_chats_memory_will_be(client: RedisClient) -> None:
    """With memory for all that is one place; with memory by person somebody has to have written before."""
    await lived(client)
    file = await SessionBackup(client, load({})).export(SESSION, now_ms=5)
    await SessionBackup(client, load({"SHOAL_MEMORY__SCOPE": "shared"})).restore(file, "web:anna/b")
    assert (await MemoryStore(client).read_memory("shared")).text == "Likes tea."
    by_person = SessionBackup(client, load({"SHOAL_MEMORY__SCOPE": "user"}))
    with pytest.raises(Exception, match="after their first message"):
        await by_person.restore(file, "web:anna/c")
    inbox = Inbox(client, InboxLimits(memory_scope="user"))
    await inbox.ingest(message(chat="anna/c"))
    with pytest.raises(Exception, match="wait for their answers"):
        await by_person.restore(file, "web:anna/c")
    await by_person.restore(msgspec.structs.replace(file, conversation=None, archive=None, log=None), "web:anna/c")
    assert (await MemoryStore(client).read_memory("user:web:owner")).text == "Likes tea."


async def test_nothing_is_left_of_a_session_that_was_erased(client: RedisClient) -> None:
    """Keys, fields, members and records, also in what all sessions share; the neighbours keep all of theirs."""
    neighbours = ["owner/ab", "owner/a/b", "owner/a*", "owner"]
    for chat in neighbours:
        await talk(client, chat=chat)
        await remember(client, "neighbour", f"chat:{message(chat=chat).session}")
    before = {name: await client.command("EXISTS", keys.history(f"web:{name}")) for name in neighbours}
    await lived(client)
    await talk(client, "bad", dead=True)
    await say(Inbox(client), "four")
    claim = await claim_one(client)
    await Turns(client).append_step(claim, 1, AssistantEntry(content="x", turn=4))
    await client.pipeline([("HSET", keys.spent(SESSION, day), "tokens", 5) for day in (20_000, 20_001)])
    jobs = Jobs(client)
    for what, of in (("archive", SESSION), ("consolidate", SESSION), ("rework", SCOPE), ("archive", "web:owner/ab")):
        await jobs.enqueue(what, of, id=f"{what}:{of}")
    await client.command("SET", keys.crashed(f"archive:{SESSION}"), 1)
    nouns = {key.replace("arq:", keys.PREFIX).split(":")[2] for key in await everything(client)}
    assert nouns >= {
        "session", "inbox", "ledger", "history", "archive", "outbox", "memory", "memlog", "spent", "chats", "seen",
        "queue", "leases", "idle", "rework", "dead", "job", "crashed",
    }  # fmt: skip

    assert await erase.erase(client, SESSION) > 10
    assert await everything(client) == set()
    assert {name: await client.command("EXISTS", keys.history(f"web:{name}")) for name in neighbours} == before
    for chat in neighbours:
        session = message(chat=chat).session
        assert (await MemoryStore(client).read_memory(f"chat:{session}")).text == "neighbour"
        assert await client.command("ZSCORE", keys.chats("web", "owner"), chat)
    assert await client.command("ZSCORE", keys.chats("web", "owner"), "owner/a") is None
    assert await client.command("XLEN", keys.DEAD) == 0
    with pytest.raises(LeaseLost):
        await Turns(client).append_step(claim, 2, AssistantEntry(content="y", turn=4))
    accepted = await say(Inbox(client), "hello again")
    assert accepted.turn == 1, "the session begins anew"


async def test_a_job_of_an_erased_session_that_runs_loses_its_lease(client: RedisClient) -> None:
    """Its worker hears of it at the next renewal; no lease stays behind without an entry in the queue."""
    await talk(client)
    await Jobs(client).enqueue("consolidate", SESSION, id=f"consolidate:{SESSION}")
    queue = LeaseQueue(client, "jobs", owner=nonce(), lease_s=15)
    claims = await queue.acquire(1)
    assert await queue.renew(claims) == [0]
    await erase.erase(client, SESSION)
    assert await queue.renew(claims) == [None]
    assert await client.command("EXISTS", keys.leases("jobs")) == 0
    await queue.close()


async def test_seen_ids_of_an_erased_session_are_forgotten_and_no_others(client: RedisClient) -> None:
    """A chat id is somebody's name; a message of another chat must not be answered twice because of it."""
    inbox = Inbox(client)
    for chat, id in (("owner/a", "m"), ("owner/a/b", "m"), ("owner/ab", "m"), ("owner", "m")):
        await inbox.ingest(message(chat=chat, id=id))
    await erase.erase(client, SESSION)
    again = [
        (await inbox.ingest(message(chat=chat, id="m"))).duplicate
        for chat in ("owner/a", "owner/a/b", "owner/ab", "owner")
    ]
    assert again == [False, True, True, True]


async def test_a_name_with_signs_of_patterns_means_itself(client: RedisClient) -> None:
    """Chat ids come from outside; one with a star is not all chats."""
    inbox = Inbox(client)
    await client.command("HSET", keys.spent("web:owner/ab", 20_000), "tokens", 5)
    for chat in ("owner/a*", "owner/ab"):
        await inbox.ingest(message(chat=chat, id="m"))
        await Jobs(client).enqueue("archive", f"web:{chat}", id=f"archive:web:{chat}")
    await erase.erase(client, "web:owner/a*")
    assert await client.command("KEYS", "*a[*]*") == []
    assert await client.command("EXISTS", keys.spent("web:owner/ab", 20_000), "arq:job:archive:web:owner/ab") == 2
    assert (await inbox.ingest(message(chat="owner/ab", id="m"))).duplicate
    for chat in ("owner/a*", "[all]", "a\\b?"):
        await inbox.ingest(message(chat=chat, id="m"))
        await erase.erase(client, message(chat=chat).session)
        assert not (await inbox.ingest(message(chat=chat, id="m"))).duplicate


async def test_whoever_runs_an_erased_turn_is_asked_to_stop(client: RedisClient) -> None:
    """Worker and page hear it at once."""
    events: list[bytes] = []
    shown: list[ChatNews] = []
    ready = asyncio.Event()

    async def connected() -> None:
        ready.set()

    fanout = Fanout(client, on_gap=connected)
    await fanout.subscribe(keys.CONTROL, events.append)
    await fanout.follow_chat(SESSION, shown.append)
    listening = asyncio.create_task(fanout.run())
    await ready.wait()
    await say(Inbox(client))
    await claim_one(client)
    await erase.erase(client, SESSION)
    await eventually(lambda: events == [b"turn:web:owner/a 1"])
    await eventually(lambda: TurnEvent(1, "stopped") in shown)
    listening.cancel()
    await asyncio.wait([listening])


def test_every_key_of_a_session_is_erased() -> None:
    """A new kind of key must not be forgotten here."""
    of_sessions = {kind for kind in vars(keys).values() if isinstance(kind, keys.SessionKeys)}
    no_keys_or_elsewhere = {keys.turn, keys.live, keys.children}  # children go with their own records, in the script
    assert set(erase.OWN_KEYS) == of_sessions - no_keys_or_elsewhere


async def test_an_operator_trusts_also_what_lies_in_a_shared_memory(client: RedisClient, shoal: Shoal) -> None:
    """By name, with a line in the audit record and one in the chat; again, there is nothing left to trust."""
    await say(Inbox(client))
    mark = {"sources": "evil.example", "file_sources": "file a.pdf", "scope": "shared"}
    await client.command("HSET", keys.session(SESSION), *(part for pair in mark.items() for part in pair))
    await client.command("HSET", keys.memory("shared"), "text", "x", "v", "1", "sources", "mcp mail")
    found = await asyncio.to_thread(shoal, "trust", SESSION)
    assert found.output == f"Trusted in '{SESSION}': evil.example, file a.pdf, mcp mail.\n"
    state = await Sessions(client).state(SESSION, scope="shared")
    assert (state.sources, state.file_sources, state.memory_sources) == ((), (), ())
    [line] = await Audit(client).newest(5)
    assert (line.kind, line.outcome, line.actor, line.about) == ("approval", "trusted", "console", "3 sources")
    lines = [one.line for one in await Outbox(client).read_after(SESSION, after=0)]
    assert [one.content for one in lines if isinstance(one, OutboundMessage)] == [erase.TRUSTED_NOTICE]
    again = await asyncio.to_thread(shoal, "trust", SESSION, "--json")
    assert json.loads(again.output) == {"session": SESSION, "trusted": []}


async def test_forgetting_is_reported_in_the_chat(client: RedisClient) -> None:
    """As `/forget` does it: memory and conversation go, what waits is dropped, the log stays."""
    await lived(client)
    await say(Inbox(client), "four")
    claim = await claim_one(client)
    await erase.forget(client, SESSION)
    state = await Sessions(client).state(SESSION)
    assert (state.entries, state.waiting, state.running) == (0, (), False)
    assert (await MemoryStore(client).read_memory(SCOPE)).text == ""
    assert await MemoryStore(client).read_log(SCOPE) == []
    lines = [row.line for row in await Outbox(client).read_after(SESSION, after=0)]
    last = lines[-1]
    assert isinstance(last, OutboundMessage)
    assert (last.content, last.kind, last.turn) == (erase.FORGOTTEN_NOTICE, "command", 4)
    assert len(lines) == 10
    with pytest.raises(LeaseLost):
        await Turns(client).append_step(claim, 1, AssistantEntry(content="y", turn=4))


# The command.


@pytest.fixture
def shoal(redis_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shoal:
    """`shoal session ...` on the test's Valkey."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str, input: str | None = None, **environ: str) -> Result:
        return CliRunner().invoke(
            cli, ["session", *arguments], input=input, env={"SHOAL_REDIS__URL": redis_url, **environ}
        )

    return run


def on(redis_url: str, work: Callable[[RedisClient], Awaitable[T]]) -> T:
    async def run() -> T:
        client = RedisClient(redis_url)
        try:
            return await work(client)
        finally:
            await client.close()

    return asyncio.run(run())


def test_list_shows_no_text(shoal: Shoal, redis_url: str) -> None:
    """Names and numbers; what people wrote is nobody's business here."""
    assert shoal("list").stdout == "No sessions.\n"
    on(redis_url, lambda client: talk(client, "private words"))
    on(redis_url, lambda client: talk(client, chat="anna/b"))
    listed = shoal("list")
    assert listed.exit_code == 0
    assert SESSION in listed.stdout
    assert log_id(SESSION) in listed.stdout
    assert "private" not in listed.stdout + shoal("list", "--json").stdout + shoal("show", SESSION).stdout
    assert "2 in all" in shoal("list", "--limit", "1").stdout
    assert shoal("list", "--match", "nobody").stdout == "No session has 'nobody' in its name.\n"
    result = json.loads(shoal("list", "--json", "--match", "anna").stdout)
    assert (result["total"], result["whole"]) == (1, True)
    [row] = result["sessions"]
    assert (row["session"], row["chat"], row["messages"], row["entries"]) == ("web:anna/b", "anna/b", 1, 4)


def test_show_says_where_a_session_stands(shoal: Shoal, redis_url: str) -> None:
    """MEMORY.md only when it is asked for."""
    on(redis_url, lived)
    assert shoal("set", SESSION, "customer=4711", "stage=a b").stdout == f"{SESSION!r} has 2 keys of metadata.\n"
    assert shoal("set", SESSION, "stage").exit_code == 2
    assert json.loads(shoal("set", SESSION, "stage=", "--json").stdout)["metadata"] == {"customer": "4711"}
    result = json.loads(shoal("show", SESSION, "--json").stdout)
    assert result["metadata"] == {"customer": "4711"}
    assert re.fullmatch(r"20\d\d-\d\d-\d\dT[\d:]{8}Z", result["created_at"])
    assert (result["entries"], result["archived_entries"], result["log_lines"], result["generation"]) == (4, 4, 8, 1)
    assert (result["memory_bytes"], result["history_entries"], result["preset"]) == (10, 1, "fast")
    assert "memory" not in result
    plain = shoal("show", SESSION)
    assert "metadata           customer=4711" in plain.stdout
    assert "MEMORY.md          10 B" in plain.stdout
    assert "last activity      0 s ago" in plain.stdout
    assert "tea" not in plain.stdout
    assert "Likes tea." in shoal("show", SESSION, "--memory").stdout
    assert json.loads(shoal("show", SESSION, "--memory", "--json").stdout)["memory"] == "Likes tea."


def test_the_list_has_titles_where_they_are_asked_for(shoal: Shoal, redis_url: str) -> None:
    """An id says nothing to people: a chat's title stands beside it, clean and on one line."""

    async def named(client: RedisClient) -> None:
        await lived(client)
        await client.command("HSET", keys.session(SESSION), "title", "Tea\x1b[2J\nfor " + "two " * 20)

    on(redis_url, named)
    assert "Tea for two two two two two two two two…  " in shoal("list", "--titles").stdout
    assert json.loads(shoal("list", "--titles", "--json").stdout)["sessions"][0]["title"].startswith(
        "Tea\x1b[2J\nfor two"
    )
    assert "Tea" not in shoal("list").stdout + shoal("list", "--json").stdout + shoal("show", SESSION).stdout


@pytest.mark.parametrize("command", ["show", "export", "forget"])
def test_a_session_that_is_not_there_is_an_error(shoal: Shoal, command: str) -> None:
    """Exit code 1, and where to look."""
    gone = shoal(command, "web:owner/nobody")
    assert gone.exit_code == 1
    assert gone.stderr == "there is no session 'web:owner/nobody'; `shoal session list` shows all\n"
    assert "no session; write channel:chat" in shoal(command, "nobody").stderr


def test_export_and_import_take_a_session_elsewhere(shoal: Shoal, redis_url: str, tmp_path: Path) -> None:
    """Through a file for its owner's eyes alone, or through a pipe; what is there is not replaced by accident."""
    on(redis_url, lived)
    wrote = shoal("export", SESSION, "-o", "kept.json")
    assert wrote.exit_code == 0, wrote.stderr
    assert "HISTORY.md with 1 entry, a conversation of 4 entries" in wrote.stdout
    kept = tmp_path / "kept.json"
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    assert [path.name for path in tmp_path.iterdir()] == ["kept.json"]
    piped = shoal("export", SESSION)
    assert {**json.loads(piped.stdout), "exported_at": 0} == {**json.loads(kept.read_text()), "exported_at": 0}

    refused = shoal("import", "kept.json")
    assert refused.exit_code == 1
    assert refused.stderr == f"session {SESSION!r} has a memory or a conversation; --force replaces it\n"
    assert shoal("import", "kept.json", "--force").exit_code == 0
    restored = shoal("import", "-", "--session", "web:anna/b", "--json", input=piped.stdout)
    assert restored.exit_code == 0, restored.stderr
    result = json.loads(restored.stdout)
    assert (result["session"], result["entries"], result["archived_entries"]) == ("web:anna/b", 4, 4)
    assert json.loads(shoal("show", "web:anna/b", "--json").stdout)["memory_bytes"] == 10


def test_a_memory_alone_leaves_the_conversation_as_it_is(shoal: Shoal, redis_url: str) -> None:
    """Also while a message waits there."""
    on(redis_url, lived)
    wrote = shoal("export", SESSION, "--memory-only", "-o", "memory.json", "--json")
    assert json.loads(wrote.stdout)["entries"] is None
    on(redis_url, lambda client: talk(client, chat="anna/b"))
    on(redis_url, lambda client: say(Inbox(client), chat="anna/b"))
    restored = shoal("import", "memory.json", "--session", "web:anna/b")
    assert restored.exit_code == 0, restored.stderr
    result = json.loads(shoal("show", "web:anna/b", "--json").stdout)
    assert (result["entries"], result["memory_bytes"], result["history_entries"], result["waiting"]) == (4, 10, 1, 1)


GOOD: dict[str, Any] = {"kind": "shoal session", "version": 1, "session": "web:owner/x", "exported_at": 1}


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ("not json", "the file cannot be read"),
        ("[" * 100_000, "the file cannot be read"),
        ('{"kind": "shoal session", "version": 1, "\ud800": 1}', "the file cannot be read"),
        ({}, "this is no file that `shoal session export` wrote"),
        ({**GOOD, "version": 3, "what": "ever"}, "the file has version 3, this release reads up to 2"),
        ({**GOOD, "version": 0}, "`$.version`"),
        ({**GOOD, "typo": 1}, "`typo`"),
        ({**GOOD, "session": "nobody"}, "'nobody' is no session"),
        ({**GOOD, "session": "system:x"}, "Shoal's own"),
        ({**GOOD, "history_md": ["fine", " "]}, "history_md has an empty entry"),
        ({**GOOD, "history_md": ["x" * 2_000_000]}, "raise memory.log_bytes"),
        ({**GOOD, "memory_md": "x" * 40_000}, "MEMORY.md has 40,000 bytes; at most 32,768 are kept; raise memory.file"),
        ({**GOOD, "conversation": [{"t": "user", "turn": 1}]}, "`$.conversation[0]`"),
        ({**GOOD, "conversation": [{"t": "intent", "call_id": "x", "turn": 1}]}, "`$.conversation[0].t`"),
        ({**GOOD, "conversation": [{"t": "user", "turn": 2**70, "content": "x"}]}, "conversation[0] cannot be stored"),
        ({**GOOD, "conversation": [{"t": "user", "turn": 1, "content": "x" * 3_000_000}]}, "the conversation has"),
    ],
)
def test_a_file_that_is_not_whole_changes_nothing(
    shoal: Shoal, redis_url: str, tmp_path: Path, document: object, message: str
) -> None:
    """Every record is looked at before the first is written."""
    text = document if isinstance(document, str) else json.dumps(document)
    (tmp_path / "bad.json").write_bytes(text.encode("utf-8", "surrogatepass"))
    refused = shoal("import", "bad.json")
    assert refused.exit_code == 1, refused.output
    assert message in refused.stderr
    assert refused.stderr.count("\n") == 1
    assert on(redis_url, lambda client: client.command("DBSIZE")) == 0


def test_a_record_of_a_newer_release_is_not_lost_silently(shoal: Shoal, redis_url: str) -> None:
    """The rest is exported, and it is said."""
    on(redis_url, talk)
    on(redis_url, lambda client: client.command("RPUSH", keys.history(SESSION), b"\x81\xa1t\xa6future"))
    result = shoal("export", SESSION)
    assert result.exit_code == 1
    assert "1 record of a newer release could not be read" in result.stderr
    assert json.loads(result.stdout)["unreadable"] == 1
    assert len(json.loads(result.stdout)["conversation"]) == 4


def test_a_place_that_cannot_be_written_is_one_line(shoal: Shoal, redis_url: str) -> None:
    """Before anything else."""
    on(redis_url, talk)
    failed = shoal("export", SESSION, "-o", "nowhere/kept.json")
    assert failed.exit_code == 1
    assert failed.stderr == "'nowhere/kept.json' cannot be written: No such file or directory\n"


def test_forget_asks_before_it_deletes(shoal: Shoal, redis_url: str) -> None:
    """And says whose memory it is when others have it, too."""
    on(redis_url, lived)
    kept = shoal("forget", SESSION, input="n\n")
    assert kept.exit_code == 1
    assert f"Delete the memory and the conversation of {SESSION!r} for good?" in kept.stderr
    assert json.loads(shoal("show", SESSION, "--json").stdout)["memory_bytes"] == 10
    assert shoal("forget", SESSION, input="y\n").exit_code == 0
    result = json.loads(shoal("show", SESSION, "--json").stdout)
    assert (result["memory_bytes"], result["history_entries"], result["entries"]) == (0, 0, 0)
    on(redis_url, lambda client: client.command("HSET", keys.session(SESSION), "scope", "shared"))
    assert "the memory 'shared' that other chats have, too," in shoal("forget", SESSION, input="n\n").stderr


def test_forget_everything_leaves_nothing(shoal: Shoal, redis_url: str) -> None:
    """The session is not even listed."""
    on(redis_url, lived)
    gone = shoal("forget", SESSION, "--everything", "--yes")
    assert gone.exit_code == 0, gone.stderr
    assert gone.stdout.startswith(f"Nothing is left of {SESSION!r}: ")
    assert on(redis_url, everything) == set()
    assert shoal("list").stdout == "No sessions.\n"
    again = shoal("forget", SESSION, "--yes", "--json")
    assert again.exit_code == 1


@pytest.mark.parametrize("kind", [keys.session, keys.inbox, keys.history], ids=str)
def test_forget_everything_mends_a_broken_chat(shoal: Shoal, redis_url: str, kind: keys.SessionKeys) -> None:
    """Everything else about it is an error in one line that says so."""
    on(redis_url, lived)
    on(redis_url, lambda client: client.pipeline([("DEL", kind(SESSION)), ("SET", kind(SESSION), "x")]))
    shown = shoal("show", SESSION)
    assert (shown.exit_code, shown.stderr.count("\n")) == (1, 1)
    assert "damaged" in shown.stderr
    assert shoal("forget", SESSION, "--everything", "--yes").exit_code == 0
    assert on(redis_url, everything) == set()


def test_a_chat_without_a_place_is_queued_again(shoal: Shoal, redis_url: str) -> None:
    """As the runbook says after a broken queue."""
    on(redis_url, lambda client: say(Inbox(client)))
    on(redis_url, lambda client: client.command("DEL", keys.queue("turns")))
    assert shoal("requeue").stdout == "1 conversation queued again.\n"
    assert json.loads(shoal("requeue", "--json").stdout) == {"queued": 0}


def test_a_redis_that_is_away_is_one_line(shoal: Shoal) -> None:
    """Exit code 3, as with all commands."""
    away = shoal("list", SHOAL_REDIS__URL="redis://127.0.0.1:1/0")
    assert (away.exit_code, away.stderr.startswith("Redis is away")) == (3, True)


async def test_a_consolidation_that_read_an_erased_conversation_brings_nothing_back(client: RedisClient) -> None:
    """The entries are not those that it read: neither when there are none, nor when there are new ones."""
    await talk(client, "one")
    store = MemoryStore(client)
    read = await store.read_unconsolidated(SESSION)
    await erase.erase(client, SESSION)
    assert not await store.consolidate(SESSION, read, take=4, entry="leaked", memory=MemoryText("leaked", "0"))
    assert await everything(client) == set()
    await talk(client, "two")
    assert not await store.consolidate(SESSION, read, take=4, entry="leaked")
    assert await client.command("LLEN", keys.history(SESSION)) == 4
