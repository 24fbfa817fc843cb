"""A rolling deploy: each step of a chat is done by the scripts of release 1 or by ours, in any order, on a real server.

What release 1 does not know (agendas, marks, presets, pauses) must harm neither the protocol nor our own memory.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, TypeVar

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from shared.embedded import EmbeddedValkey
from shared.errors import LeaseLost, Refused
from shared.ids import nonce
from shared.messages.codec import encode
from shared.messages.inbound import InboundMessage
from shared.messages.live import TurnEvent
from shared.messages.outbound import OutboundMessage, SaidLine
from shared.messages.schedule import BACKGROUND
from shared.messages.transcript import AssistantEntry, TranscriptEntry, UserEntry
from shared.store import keys
from shared.store.client.redis_client import RedisClient
from shared.store.delivery.outbox import Outbox
from shared.store.sessions.memory import MemoryStore, Unconsolidated
from shared.store.sessions.session import Sessions
from shared.store.turns.inbox import Inbox, InboxLimits
from shared.store.turns.queue import Claim, LeaseQueue, TurnWork
from shared.store.turns.turn_writes import HISTORY_CAP_BYTES, Turns
from tests.helpers import valkey as valkey_helper
from tests.helpers.build import message, reply
from tests.records.release_1 import store as release_1

T = TypeVar("T")
SESSION: Final = "web:owner/a"
LEASE_S: Final = 1000.0
BIG: Final = "x" * 1_200_000
"""Two of these are more than a conversation may hold."""
LIMITS: Final = InboxLimits(sender_per_minute=60_000, bot_turns=1000, idle_ms=1)
EVERYDAY: Final = settings(max_examples=25, stateful_step_count=30, deadline=None, derandomize=True, database=None)

by_release_1 = st.booleans()
back = st.sampled_from([0, 0, 0, 1, 2])


@dataclass
class Held:
    """What some worker, of whatever release, believes."""

    token: str
    owner: str
    n: int
    steps: int
    again: Claim

    @property
    def lease(self) -> str:
        return f"{self.owner}:{self.token}"


@dataclass
class Expected:
    """The chat as it must be; `kept` has number and size of each entry of the conversation."""

    waiting: list[int] = field(default_factory=list)
    counter: int = 0
    lease: str | None = None
    steps: int = 0
    replies: list[int] = field(default_factory=list)
    kept: list[tuple[int, int]] = field(default_factory=list)
    answers: dict[str, int] = field(default_factory=dict)
    mark: int = 0
    token: int = 0


class Deploy(RuleBasedStateMachine):
    """One chat, any number of processes of two releases."""

    url: ClassVar[str]
    runner: ClassVar[asyncio.Runner]

    def __init__(self) -> None:
        super().__init__()
        self.expected = Expected()
        self.held: list[Held] = []
        self.read: Unconsolidated | None = None
        self.run(self._open())

    async def _open(self) -> None:
        self.client = RedisClient(self.url)
        await self.client.command("FLUSHALL")
        self.inbox, self.turns = Inbox(self.client, LIMITS), Turns(self.client, LIMITS)
        self.sessions, self.memory = Sessions(self.client, LIMITS), MemoryStore(self.client)
        self.queue = LeaseQueue(self.client, "turns", owner=nonce(), lease_s=LEASE_S)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.runner.run(work)

    def teardown(self) -> None:
        self.run(self.client.close())

    @precondition(lambda self: len(self.expected.waiting) < 6)
    @rule(old=by_release_1, known=st.sampled_from([False, False, True]))
    def a_message_comes(self, old: bool, known: bool) -> None:
        """A new one, or one that another gateway has taken before."""
        now = self.expected
        known = known and bool(now.answers)
        id = next(iter(now.answers)) if known else f"m{now.counter + 1}"
        said = message(id=id)
        show = SaidLine(id=id, text=said.content)
        if old:
            status, n, _, _ = self.run(release_1.ingest(self.client, said, show))
        else:
            accepted = self.run(self.inbox.ingest(said, show=show, principal="owner"))
            status, n = int(not accepted.duplicate), accepted.turn
        if not known:
            now.counter += 1
            now.waiting.append(now.counter)
            now.answers[id] = now.counter
        assert (status, n) == (int(not known), now.answers[id])

    @precondition(lambda self: len(self.expected.waiting) < 6)
    @rule()
    def a_tick_comes(self) -> None:
        """Alone it waits in the background, which release 1 does not know: its gateway puts the session among the turns
        as well, its worker does not see it."""
        now = self.expected
        now.counter += 1
        id = f"tick{now.counter}"
        said = msgspec.structs.replace(message(id=id), metadata={BACKGROUND: "1"})
        accepted = self.run(self.inbox.ingest(said, internal=True))
        assert accepted.turn == now.counter
        now.waiting.append(now.counter)
        now.answers[id] = now.counter

    @precondition(lambda self: self.expected.waiting and self.expected.lease is None)
    @rule(old=by_release_1)
    def a_worker_takes_it(self, old: bool) -> None:
        """What it is handed is the same whoever asks."""
        now = self.expected
        if old:
            owner = nonce()
            seen = self.run(self.client.command("ZSCORE", keys.queue("turns"), keys.turn(SESSION))) is not None
            rows = self.run(release_1.acquire(self.client, owner, int(LEASE_S * 1000)))
            assert len(rows) == int(seen)
            if not seen:
                return
            [row] = rows
            token, n, steps = row[1].decode(), int(row[4]), len(row[11])
            claim = Claim(row[0].decode(), owner, token, 0, False, None)
        else:
            [claim] = self.run(self.queue.acquire(1))
            assert claim.turn is not None
            owner, token, n, steps = claim.owner, claim.token, claim.turn.n, len(claim.turn.ledger)
        assert (n, steps) == (now.waiting[0], now.steps)
        assert int(token) > now.token
        self.held.append(Held(token, owner, n, steps, claim))
        now.lease, now.token = f"{owner}:{token}", int(token)

    @precondition(lambda self: self.held)
    @rule(old=by_release_1, back=back)
    def a_step_is_written(self, old: bool, back: int) -> None:
        """By whoever holds the lease, and by nobody else."""
        held, now = self.held[-1 - back % len(self.held)], self.expected
        entry = AssistantEntry(content=f"step {held.steps + 1}", turn=held.n)
        if old:
            written = self.run(release_1.ledger(self.client, SESSION, held.lease, held.steps + 1, entry)) != -1
        else:
            written = self._allowed(self.turns.append(held.again, held.steps + 1, entry))
        assert written is (held.lease == now.lease)
        if written:
            held.steps += 1
            now.steps = held.steps

    @precondition(lambda self: self.held)
    @rule(old=by_release_1, back=back, big=st.booleans())
    def a_turn_is_committed(self, old: bool, back: int, big: bool) -> None:
        """Both releases drop the oldest entries at the cap; only ours moves the mark with them."""
        held, now = self.held[-1 - back % len(self.held)], self.expected
        entry = UserEntry(content=BIG if big else "hello", turn=held.n)
        line = reply("yes", held.n)
        if old:
            args = (SESSION, held.lease, held.n, HISTORY_CAP_BYTES, [entry], line)
            done = self.run(release_1.commit(self.client, *args))
        else:
            done = self.run(self._commit(held, [entry], line))
        over = bool(now.replies) and held.n <= now.replies[-1]
        assert done == (0 if over else 1 if held.lease == now.lease else -1)
        if done != 1:
            return
        now.waiting.remove(held.n)
        now.replies.append(held.n)
        now.lease, now.steps = None, 0
        now.kept.append((held.n, len(encode(entry))))
        while sum(size for _, size in now.kept) > HISTORY_CAP_BYTES and len(now.kept) > 1:
            del now.kept[0]
            now.mark += not old

    async def _commit(self, held: Held, history: list[TranscriptEntry], line: OutboundMessage) -> int:
        # A claim of release 1 has no TurnWork of ours: the same call with its number.
        claim = Claim(held.again.member, held.owner, held.token, 0, False, _work(held.n))
        try:
            done = await self.turns.commit(claim, history=history, lines=[line], event=TurnEvent(held.n, "done"))
        except LeaseLost:
            return -1
        return int(done.first)

    @precondition(lambda self: self.held)
    @rule(old=by_release_1, back=back, count=st.sampled_from(["", "errors", "away"]))
    def a_turn_is_given_back(self, old: bool, back: int, count: str) -> None:
        """At once due again."""
        held, now = self.held[-1 - back % len(self.held)], self.expected
        if old:
            given = self.run(release_1.release(self.client, SESSION, held.lease, count)) == 1
        else:
            given = self._allowed(self.queue.release(held.again, count=count))
        assert given is (held.lease == now.lease)
        if given:
            now.lease = None

    @precondition(lambda self: self.expected.lease is not None)
    @rule(old=by_release_1)
    def a_worker_dies(self, old: bool) -> None:
        """Its lease runs out, and a worker of either release takes it over."""
        self.run(self.client.command("ZADD", keys.queue("turns"), 1, keys.turn(SESSION)))
        self.expected.lease = None
        self.a_worker_takes_it(old)

    @precondition(lambda self: not self.expected.waiting)
    @rule(comes=by_release_1, takes=by_release_1, commits=by_release_1, big=st.booleans())
    def a_message_is_answered(self, comes: bool, takes: bool, commits: bool, big: bool) -> None:
        """All at once, or most runs would not fill a conversation."""
        self.a_message_comes(comes, known=False)
        self.a_worker_takes_it(takes)
        self.a_turn_is_committed(commits, 0, big)

    @rule(really=st.sampled_from([True, False, False, False, False]))
    def a_new_conversation_begins(self, really: bool) -> None:
        """By our gateway, also while release 1 answers: its late writes are refused, by the scripts it has."""
        now = self.expected
        if not really:
            return
        state = self.run(self.sessions.state(SESSION))
        line = OutboundMessage(content="New.", turn=now.counter, kind="command")
        self.run(self.sessions.answer(message("/new", id=nonce()), line, state, change="new"))
        now.mark += len(now.kept)
        now.waiting, now.lease, now.steps, now.kept = [], None, 0, []

    @precondition(lambda self: self.expected.kept)
    @rule()
    def memory_is_read(self) -> None:
        """The first half of a consolidation."""
        self.read = self.run(self.memory.unconsolidated(SESSION))

    @precondition(lambda self: self.read is not None and self.read.entries)
    @rule(take=st.sampled_from([1, 1, 1, 2, 3]))
    def memory_is_written(self, take: int) -> None:
        """What was read is what goes, or nothing does: also when release 1 dropped entries and left the mark alone."""
        assert self.read is not None
        now, take = self.expected, min(take, len(self.read.entries))
        before = self._history()
        done = self.run(self.memory.consolidate(SESSION, self.read, take=take, entry="things happened"))
        if done:
            assert tuple(before[:take]) == self.read.entries[:take]
            now.mark += take
            del now.kept[:take]

    @invariant()
    def nothing_is_lost_and_all_is_in_order(self) -> None:
        """Read from Redis, after every step."""
        now, client = self.expected, self.client
        inbox, score, behind, lease, ledger, flat = self.run(
            client.pipeline(
                [
                    ["XRANGE", keys.inbox(SESSION), "-", "+"],
                    ["ZSCORE", keys.queue("turns"), keys.turn(SESSION)],
                    ["ZSCORE", keys.queue(keys.BACKGROUND), keys.turn(SESSION)],
                    ["HGET", keys.leases("turns"), keys.turn(SESSION)],
                    ["XRANGE", keys.ledger(SESSION), "-", "+"],
                    ["HGETALL", keys.session(SESSION)],
                ]
            )
        )
        fields = dict(zip(flat[::2], flat[1::2], strict=True))
        assert [int(id.split(b"-")[0]) for id, _ in inbox] == now.waiting
        # What release 1 has answered may be in the background still, until a worker of ours looks.
        assert (score is not None or behind is not None) if now.waiting else score is None
        assert score is not None or lease is None
        assert lease is None if now.lease is None else lease.decode() == now.lease
        assert [int(id.split(b"-")[0]) for id, _ in ledger] == list(range(1, now.steps + 1))
        lines = [one.line for one in self.run(Outbox(client).read(SESSION, after=0))]
        assert [
            line.turn for line in lines if isinstance(line, OutboundMessage) and line.kind == "reply"
        ] == now.replies
        assert now.replies == sorted(set(now.replies))
        assert [len(entry) for entry in self._history()] == [size for _, size in now.kept]
        assert int(fields.get(b"history", 0)) == sum(size for _, size in now.kept), "bytes of the conversation"
        assert int(fields.get(b"mark", 0)) == now.mark, "the mark only grows, with all that we let go of"

    def _history(self) -> list[bytes]:
        found: list[bytes] = self.run(self.client.command("LRANGE", keys.history(SESSION), 0, -1))
        return found

    def _allowed(self, write: Coroutine[Any, Any, object]) -> bool:
        try:
            self.run(write)
        except LeaseLost:
            return False
        return True


def _work(n: int) -> TurnWork:
    return TurnWork(n, b"", 0, 0, 0, 1, 0, (), ())


@pytest.fixture
def machine(valkey: EmbeddedValkey) -> Iterator[type[Deploy]]:
    """The state machine with a server and an event loop of its own."""
    with asyncio.Runner() as runner:
        yield type("DeployHere", (Deploy,), {"url": valkey_helper.fresh(valkey), "runner": runner})


def test_two_releases_side_by_side_lose_nothing(machine: type[Deploy]) -> None:
    """Old and new scripts on the same keys in any order: see the module."""
    run_state_machine_as_test(machine, settings=EVERYDAY)


async def test_a_commit_of_release_1_puts_no_chat_on_the_agenda_and_the_next_of_ours_does(client: RedisClient) -> None:
    """What release 1 answered last is consolidated when the chat goes on, not when it is idle."""
    inbox, turns = Inbox(client, LIMITS), Turns(client, LIMITS)
    await inbox.ingest(message())
    owner = nonce()
    [row] = await release_1.acquire(client, owner, 1000)
    entry = UserEntry(content="hello", turn=1)
    lease = f"{owner}:{row[1].decode()}"
    assert await release_1.commit(client, SESSION, lease, 1, HISTORY_CAP_BYTES, [entry], reply("yes", 1)) == 1
    assert await client.command("ZSCORE", keys.IDLE, SESSION) is None
    await inbox.ingest(message())
    [claim] = await LeaseQueue(client, "turns", owner=nonce(), lease_s=30).acquire(1)
    done = await turns.commit(claim, history=[entry], lines=[reply("yes", 2)], event=TurnEvent(2, "done"))
    assert done.entries == 2
    assert await client.command("ZSCORE", keys.IDLE, SESSION) is not None


async def test_a_command_that_release_1_is_sent_again_is_an_error_and_no_message(client: RedisClient) -> None:
    """Its gateway cannot say "0 wait before it"; the client comes back to one of ours, which can."""
    said, sessions = message("/new", id="c1"), Sessions(client)
    line, show = OutboundMessage(content="New.", turn=0, kind="command"), SaidLine(id="c1", text="/new")
    await sessions.answer(said, line, await sessions.state(SESSION), change="new", show=show)
    with pytest.raises(Exception, match="invalid end ID"):
        await release_1.ingest(client, said, show)
    assert await client.command("EXISTS", keys.inbox(SESSION)) == 0
    assert (await Inbox(client).ingest(said)).duplicate


async def test_release_1_passes_over_what_is_counted_since(client: RedisClient) -> None:
    """A pause for bots and a chosen model stay in the session; a person's message at release 1 ends no pause."""
    inbox = Inbox(client, InboxLimits(bot_turns=1))
    bot = InboundMessage(
        channel="web", chat_id="owner/a", sender_id="b", id="b1", content="hi", timestamp=1, metadata={"bot": "1"}
    )
    await inbox.ingest(bot)
    with pytest.raises(Refused, match="no person"):
        await inbox.ingest(msgspec.structs.replace(bot, id="b2"))
    await client.command("HSET", keys.session(SESSION), "preset", "fast", "scope", "shared")
    status, n, ahead, _ = await release_1.ingest(client, message(id="m2"), SaidLine(id="m2", text="hello"))
    assert (status, n, ahead) == (1, 2, 1)
    owner = nonce()
    [row] = await release_1.acquire(client, owner, 1000)
    line = reply("yes", 1)
    assert await release_1.commit(client, SESSION, f"{owner}:{row[1].decode()}", 1, HISTORY_CAP_BYTES, [], line) == 1
    told = await client.command("HMGET", keys.session(SESSION), "bots", "preset", "scope")
    assert told == [b"paused", b"fast", b"shared"]
    await inbox.ingest(message())
    assert await client.command("HGET", keys.session(SESSION), "bots") is None


async def test_entries_that_release_1_dropped_are_not_taken_for_those_that_were_read(client: RedisClient) -> None:
    """It leaves the mark alone: by the first of them a consolidation knows that they are gone, and takes no others."""
    inbox, memory, owner = Inbox(client), MemoryStore(client), nonce()

    async def answered(n: int) -> None:
        await inbox.ingest(message())
        [row] = await release_1.acquire(client, owner, 1000)
        entry, lease = UserEntry(content=BIG, turn=n), f"{owner}:{row[1].decode()}"
        assert await release_1.commit(client, SESSION, lease, n, HISTORY_CAP_BYTES, [entry], reply("yes", n)) == 1

    await answered(1)
    read = await memory.unconsolidated(SESSION)
    await answered(2)
    left = await client.command("LRANGE", keys.history(SESSION), 0, -1)
    assert len(left) == 1, "the first entry was dropped"
    assert await client.command("HGET", keys.session(SESSION), "mark") is None
    assert not await memory.consolidate(SESSION, read, take=1, entry="what was dropped")
    assert await client.command("LRANGE", keys.history(SESSION), 0, -1) == left
    assert await memory.log(read.scope) == []
