"""`/new` and `/stop` among messages, workers and late writes, in any order, on the real scripts and a real server."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any, ClassVar

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from shared.errors import LeaseLost
from shared.ids import nonce
from shared.messages.live import TurnEvent
from shared.messages.outbound import OutboundMessage, UserLine
from shared.messages.transcript import AssistantEntry, TranscriptEntry, UserEntry
from shared.store import keys
from shared.store.client.redis_client import RedisClient
from shared.store.delivery.outbox import Outbox
from shared.store.sessions.session import Change, InboxChanged, Sessions, SessionState
from shared.store.turns.inbox import Inbox
from shared.store.turns.queue import Claim, LeaseQueue
from shared.store.turns.turn_writes import Turns
from tests.helpers.build import message, reply, say

SESSION = "web:owner/a"
EVERYDAY = settings(max_examples=60, stateful_step_count=30, deadline=None, derandomize=True, database=None)


@dataclass
class WantedChange:
    """A command on its way: what its gateway read, and which message it is."""

    id: str
    change: Change
    state: SessionState
    fits: bool = True
    done: bool = False


@dataclass
class Expected:
    """The session as it must be."""

    waiting: list[int] = field(default_factory=list)
    counter: int = 0
    generation: int = 0
    lease: str | None = None
    stop: int = 0
    lines: list[str] = field(default_factory=list)
    entries: int = 0
    archived: int = 0


class Chat(RuleBasedStateMachine):
    """One chat, two workers, any number of gateways."""

    url: ClassVar[str]
    runner: ClassVar[asyncio.Runner]

    def __init__(self) -> None:
        super().__init__()
        self.expected = Expected()
        self.claims: list[Claim] = []
        self.wanted: list[WantedChange] = []
        self.ids = 0
        self.run(self._open())

    async def _open(self) -> None:
        self.client = RedisClient(self.url)
        await self.client.command("FLUSHALL")
        self.inbox, self.sessions, self.turns = Inbox(self.client), Sessions(self.client), Turns(self.client)
        self.workers = [LeaseQueue(self.client, "turns", owner=nonce(), lease_s=1000) for _ in range(2)]

    def run(self, work: Any) -> Any:
        return self.runner.run(work)

    def teardown(self) -> None:
        self.run(self.client.close())

    def _id(self) -> str:
        self.ids += 1
        return f"id{self.ids}"

    def _moved(self, *, head: bool) -> None:
        """What gateways have read is old: for all commands, for `/stop` when the turn at the head is another."""
        for wanted in self.wanted:
            wanted.fits = wanted.fits and wanted.change == "stop" and not head

    @rule()
    def a_message_comes(self) -> None:
        id, now = self._id(), self.expected
        self.run(say(self.inbox, id=id))
        now.counter += 1
        now.waiting.append(now.counter)
        now.lines.append(id)
        self._moved(head=len(now.waiting) == 1)

    @rule(worker=st.sampled_from([0, 1]))
    def a_worker_takes(self, worker: int) -> None:
        now = self.expected
        claims = self.run(self.workers[worker].acquire(5))
        assert bool(claims) == (bool(now.waiting) and now.lease is None)
        for claim in claims:
            assert claim.turn.n == now.waiting[0]
            assert claim.turn.stop == now.stop
            assert (claim.turn.crashes, claim.turn.attempt) == (0, 1)
            now.lease = claim.lease_id
            self.claims.append(claim)

    @precondition(lambda self: self.claims)
    @rule(back=st.integers(0, 3), step=st.booleans())
    def a_worker_writes(self, back: int, step: bool) -> None:
        """Who lost its turn to a new generation is refused, whatever it writes and however late."""
        claim = self.claims[-1 - back % len(self.claims)]
        assert claim.turn is not None
        now, n = self.expected, claim.turn.n
        if now.lease != claim.lease_id:
            if n not in self._committed():
                with pytest.raises(LeaseLost):
                    self.run(self.turns.append_step(claim, 1, AssistantEntry(content="x", turn=n)))
                with pytest.raises(LeaseLost):
                    self.run(self._commit(claim))
        elif step:
            self.run(self.turns.append_step(claim, 1, AssistantEntry(content="x", turn=n)))
        else:
            assert self.run(self._commit(claim)).first
            now.waiting.remove(n)
            now.lease, now.stop, now.entries = None, 0, now.entries + 2
            now.lines.append(f"reply {n}")
            self._moved(head=True)

    def _committed(self) -> set[int]:
        return {int(line.split()[1]) for line in self.expected.lines if line.startswith("reply")}

    async def _commit(self, claim: Claim) -> Any:
        assert claim.turn is not None
        n = claim.turn.n
        history: list[TranscriptEntry] = [UserEntry(content="q", turn=n), AssistantEntry(content="a", turn=n)]
        return await self.turns.commit(claim, history=history, lines=[reply("a", n)], event=TurnEvent(n, "done"))

    @rule(change=st.sampled_from(["new", "forget", "stop", ""]))
    def a_gateway_reads_for_a_command(self, change: Change) -> None:
        state = self.run(self.sessions.state(SESSION))
        now = self.expected
        assert (state.counter, len(state.waiting), state.turn) == (
            now.counter, len(now.waiting), now.waiting[0] if now.waiting else 0,
        )  # fmt: skip
        assert (state.generation, state.entries, state.running) == (now.generation, now.entries, now.lease is not None)
        self.wanted.append(WantedChange(self._id(), change, state))

    @precondition(lambda self: self.wanted)
    @rule(back=st.integers(0, 3))
    def a_gateway_answers(self, back: int) -> None:
        """Perhaps long after it read, perhaps once more."""
        wanted = self.wanted[-1 - back % len(self.wanted)]
        texts = message(f"/{wanted.change}", id=wanted.id)
        line = OutboundMessage(content="x", turn=0, in_reply_to=(texts.id,), kind="command")
        answering = self.sessions.answer_command(
            texts, line, wanted.state, change=wanted.change, log_line=UserLine(id=texts.id, text="x"), principal="owner"
        )
        if wanted.done:
            assert self.run(answering).duplicate
        elif wanted.change and not wanted.fits:
            with pytest.raises(InboxChanged):
                self.run(answering)
        else:
            assert not self.run(answering).duplicate
            self._answered(wanted)

    def _answered(self, wanted: WantedChange) -> None:
        wanted.done, now = True, self.expected
        now.lines += [wanted.id, "command"]
        if wanted.change == "stop" and now.waiting:
            now.stop = now.waiting[0]
        elif wanted.change in ("new", "forget"):
            if now.waiting:
                self._moved(head=True)
            now.archived = now.archived + now.entries if wanted.change == "new" else 0
            now.waiting, now.lease, now.stop, now.entries = [], None, 0, 0
            now.generation += 1

    @invariant()
    def the_store_is_as_it_must_be(self) -> None:
        """Nothing lost, nothing dropped unseen, each command answered once, and no debris."""
        self.run(self._check())

    async def _check(self) -> None:
        now, ask = self.expected, self.client.command
        state = await self.sessions.state(SESSION)
        assert (state.counter, len(state.waiting), state.generation) == (now.counter, len(now.waiting), now.generation)
        assert int(await ask("HGET", keys.session(SESSION), "stop") or 0) == now.stop
        assert await ask("ZCARD", keys.queue("turns")) == (1 if now.waiting else 0)
        lease = await ask("HGET", keys.leases("turns"), keys.turn(SESSION))
        assert lease == (now.lease.encode() if now.lease else None)
        assert (state.entries, await ask("LLEN", keys.archive(SESSION))) == (now.entries, now.archived)
        if not now.waiting:
            assert await ask("EXISTS", keys.inbox(SESSION), keys.ledger(SESSION)) == 0
        log = [one.line for one in await Outbox(self.client).read_after(SESSION, after=0)]
        assert [_entries(line) for line in log] == now.lines


def _entries(line: UserLine | OutboundMessage) -> str:
    if isinstance(line, UserLine):
        return line.id
    return "command" if line.kind == "command" else f"reply {line.turn}"


def test_commands_among_messages_and_workers_in_any_order_keep_the_session_whole(redis_url: str) -> None:
    """No message lost or dropped unseen, no late write of an old generation, no command done twice."""
    with asyncio.Runner() as loop:

        class Here(Chat):
            url = redis_url
            runner = loop

        run_state_machine_as_test(Here, settings=EVERYDAY)
