"""A rolling update at the level of scripts: each step of a chat is done by the previous version's scripts or by
today's, in any order, on a real server."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Final, TypeVar

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from shared.embedded import EmbeddedValkey
from shared.errors import LeaseLost
from shared.ids import nonce
from shared.messages.codec import encode
from shared.messages.live import TurnEvent
from shared.messages.outbound import OutboundMessage, UserLine
from shared.messages.schedule import BACKGROUND
from shared.messages.transcript import AssistantEntry, UserEntry
from shared.store import keys
from shared.store.client.redis_client import RedisClient
from shared.store.delivery.outbox import Outbox
from shared.store.sessions.memory import MemoryStore, Unconsolidated
from shared.store.sessions.session import Sessions
from shared.store.turns.inbox import Inbox, InboxLimits
from shared.store.turns.queue import Claim, LeaseQueue
from shared.store.turns.turn_writes import HISTORY_CAP_BYTES, Turns
from tests.helpers import valkey as valkey_helper
from tests.helpers.build import message, reply
from tests.records.previous import PreviousClient, extract, same_calls

T = TypeVar("T")
SESSION: Final = "web:owner/a"
LEASE_S: Final = 1000.0
BIG: Final = "x" * 1_200_000
"""Two of these are more than a conversation may hold."""
LIMITS: Final = InboxLimits(sender_per_minute=60_000, bot_turns=1000, idle_ms=1)
EVERYDAY: Final = settings(max_examples=25, stateful_step_count=30, deadline=None, derandomize=True, database=None)
SCRIPTS: Final = (
    "turns/ingest",
    "turns/acquire",
    "turns/step",
    "turns/commit",
    "turns/release",
    "commands/reset",
    "sessions/consolidate",
)

by_previous = st.booleans()
back = st.sampled_from([0, 0, 0, 1, 2])


class Version:
    """The store as one version of the scripts serves it."""

    def __init__(self, client: RedisClient) -> None:
        self.client = client
        self.inbox, self.turns = Inbox(client, LIMITS), Turns(client, LIMITS)
        self.sessions, self.memory = Sessions(client, LIMITS), MemoryStore(client)
        self.queue = LeaseQueue(client, "turns", owner=nonce(), lease_s=LEASE_S)


@dataclass
class Held:
    """A lease as some worker believes to have it."""

    claim: Claim
    n: int
    steps: int


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
    """One chat, served by processes of two versions."""

    url: ClassVar[str]
    runner: ClassVar[asyncio.Runner]
    folder: ClassVar[Path]

    def __init__(self) -> None:
        super().__init__()
        self.expected = Expected()
        self.held: list[Held] = []
        self.read: Unconsolidated | None = None
        self.run(self._open())

    async def _open(self) -> None:
        self.ours = Version(RedisClient(self.url))
        self.previous = Version(PreviousClient(self.url, self.folder))
        self.client = self.ours.client
        await self.client.command("FLUSHALL")

    def by(self, previous: bool) -> Version:
        """The version that does the next step."""
        return self.previous if previous else self.ours

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.runner.run(work)

    def teardown(self) -> None:
        self.run(self.ours.client.close())
        self.run(self.previous.client.close())

    @precondition(lambda self: len(self.expected.waiting) < 6)
    @rule(previous=by_previous, known=st.sampled_from([False, False, True]))
    def a_message_comes(self, previous: bool, known: bool) -> None:
        """A new one, or one that another gateway has accepted before."""
        now = self.expected
        known = known and bool(now.answers)
        id = next(iter(now.answers)) if known else f"m{now.counter + 1}"
        sent = message(id=id)
        show = UserLine(id=id, text=sent.content)
        accepted = self.run(self.by(previous).inbox.ingest(sent, log_line=show, principal="owner"))
        if not known:
            now.counter += 1
            now.waiting.append(now.counter)
            now.answers[id] = now.counter
        assert (accepted.duplicate, accepted.turn) == (known, now.answers[id])

    @precondition(lambda self: len(self.expected.waiting) < 6)
    @rule(previous=by_previous)
    def a_tick_comes(self, previous: bool) -> None:
        """A turn that no person waits for goes to the background queue."""
        now = self.expected
        now.counter += 1
        id = f"tick{now.counter}"
        tick = msgspec.structs.replace(message(id=id), metadata={BACKGROUND: "1"})
        assert self.run(self.by(previous).inbox.ingest(tick, internal=True)).turn == now.counter
        now.waiting.append(now.counter)
        now.answers[id] = now.counter

    @precondition(lambda self: self.expected.waiting and self.expected.lease is None)
    @rule(previous=by_previous)
    def a_worker_claims_it(self, previous: bool) -> None:
        """The claim holds the same whichever version asks."""
        now = self.expected
        [claim] = self.run(self.by(previous).queue.acquire(1))
        assert claim.turn is not None
        assert (claim.turn.n, len(claim.turn.ledger)) == (now.waiting[0], now.steps)
        assert int(claim.token) > now.token
        self.held.append(Held(claim, claim.turn.n, len(claim.turn.ledger)))
        now.lease, now.token = f"{claim.owner}:{claim.token}", int(claim.token)

    @precondition(lambda self: self.held)
    @rule(previous=by_previous, back=back)
    def a_step_is_written(self, previous: bool, back: int) -> None:
        """Only the holder of the lease can write."""
        held, now = self.held[-1 - back % len(self.held)], self.expected
        entry = AssistantEntry(content=f"step {held.steps + 1}", turn=held.n)
        written = self._allowed(self.by(previous).turns.append_step(held.claim, held.steps + 1, entry))
        assert written is self._holds(held)
        if written:
            held.steps += 1
            now.steps = held.steps

    @precondition(lambda self: self.held)
    @rule(previous=by_previous, back=back, big=st.booleans())
    def a_turn_is_committed(self, previous: bool, back: int, big: bool) -> None:
        """Once; the oldest entries go at the cap, and the mark with them."""
        held, now = self.held[-1 - back % len(self.held)], self.expected
        entry = UserEntry(content=BIG if big else "hello", turn=held.n)
        over = bool(now.replies) and held.n <= now.replies[-1]
        try:
            done = self.run(
                self.by(previous).turns.commit(
                    held.claim, history=[entry], lines=[reply("yes", held.n)], event=TurnEvent(held.n, "done")
                )
            )
        except LeaseLost:
            assert not over
            assert not self._holds(held)
            return
        assert done.first is not over
        if over:
            return
        now.waiting.remove(held.n)
        now.replies.append(held.n)
        now.lease, now.steps = None, 0
        now.kept.append((held.n, len(encode(entry))))
        while sum(size for _, size in now.kept) > HISTORY_CAP_BYTES and len(now.kept) > 1:
            del now.kept[0]
            now.mark += 1

    @precondition(lambda self: self.held)
    @rule(previous=by_previous, back=back, count=st.sampled_from(["", "errors", "away"]))
    def a_turn_is_released(self, previous: bool, back: int, count: str) -> None:
        """It is due again at once."""
        held = self.held[-1 - back % len(self.held)]
        released = self._allowed(self.by(previous).queue.release(held.claim, count=count))
        assert released is self._holds(held)
        if released:
            self.expected.lease = None

    @precondition(lambda self: self.expected.lease is not None)
    @rule(previous=by_previous)
    def a_worker_dies(self, previous: bool) -> None:
        """Its lease runs out, and a worker of either version takes the turn over."""
        self.run(self.client.command("ZADD", keys.queue("turns"), 1, keys.turn(SESSION)))
        self.expected.lease = None
        self.a_worker_claims_it(previous)

    @precondition(lambda self: not self.expected.waiting)
    @rule(comes=by_previous, claims=by_previous, commits=by_previous, big=st.booleans())
    def a_message_is_answered(self, comes: bool, claims: bool, commits: bool, big: bool) -> None:
        """In one rule, since few runs would fill a conversation otherwise."""
        self.a_message_comes(comes, known=False)
        self.a_worker_claims_it(claims)
        self.a_turn_is_committed(commits, 0, big)

    @rule(previous=by_previous, really=st.sampled_from([True, False, False, False, False]))
    def a_new_conversation_begins(self, previous: bool, really: bool) -> None:
        """Late writes of a turn that runs meanwhile are refused."""
        now = self.expected
        if not really:
            return
        store = self.by(previous).sessions
        state = self.run(store.state(SESSION))
        line = OutboundMessage(content="New.", turn=now.counter, kind="command")
        self.run(store.answer_command(message("/new", id=nonce()), line, state, change="new"))
        now.mark += len(now.kept)
        now.waiting, now.lease, now.steps, now.kept = [], None, 0, []

    @precondition(lambda self: self.expected.kept)
    @rule()
    def memory_is_read(self) -> None:
        """The first half of a consolidation."""
        self.read = self.run(self.ours.memory.read_unconsolidated(SESSION))

    @precondition(lambda self: self.read is not None and self.read.entries)
    @rule(previous=by_previous, take=st.sampled_from([1, 1, 1, 2, 3]))
    def memory_is_written(self, previous: bool, take: int) -> None:
        """Exactly the entries that were read are dropped, or none."""
        assert self.read is not None
        now, take = self.expected, min(take, len(self.read.entries))
        before = self._history()
        done = self.run(self.by(previous).memory.consolidate(SESSION, self.read, take=take, entry="things happened"))
        if done:
            assert tuple(before[:take]) == self.read.entries[:take]
            now.mark += take
            del now.kept[:take]

    @invariant()
    def nothing_is_lost_and_all_is_in_order(self) -> None:
        """Checked in Redis after every step."""
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
        assert (score is not None or behind is not None) if now.waiting else score is None
        assert score is not None or lease is None
        assert lease is None if now.lease is None else lease.decode() == now.lease
        assert [int(id.split(b"-")[0]) for id, _ in ledger] == list(range(1, now.steps + 1))
        lines = [one.line for one in self.run(Outbox(client).read_after(SESSION, after=0))]
        assert [
            line.turn for line in lines if isinstance(line, OutboundMessage) and line.kind == "reply"
        ] == now.replies
        assert now.replies == sorted(set(now.replies))
        assert [len(entry) for entry in self._history()] == [size for _, size in now.kept]
        assert int(fields.get(b"history", 0)) == sum(size for _, size in now.kept), "bytes of the conversation"
        assert int(fields.get(b"mark", 0)) == now.mark, "the mark grows by every entry that is dropped"

    def _history(self) -> list[bytes]:
        found: list[bytes] = self.run(self.client.command("LRANGE", keys.history(SESSION), 0, -1))
        return found

    def _holds(self, held: Held) -> bool:
        return f"{held.claim.owner}:{held.claim.token}" == self.expected.lease

    def _allowed(self, write: Coroutine[Any, Any, object]) -> bool:
        try:
            self.run(write)
        except LeaseLost:
            return False
        return True


@pytest.fixture
def machine(valkey: EmbeddedValkey, tmp_path: Path) -> Iterator[type[Deploy]]:
    """The state machine with a server and an event loop of its own."""
    folder = extract(tmp_path)
    if not same_calls(folder, SCRIPTS):
        pytest.skip("the previous version calls its scripts differently; test_rolling_update.py runs its processes")
    with asyncio.Runner() as runner:
        yield type("DeployHere", (Deploy,), {"url": valkey_helper.fresh(valkey), "runner": runner, "folder": folder})


def test_two_versions_side_by_side_lose_nothing(machine: type[Deploy]) -> None:
    """Scripts of both versions on the same keys, in any order: see the module."""
    run_state_machine_as_test(machine, settings=EVERYDAY)
