"""Any sequence of questions, answers, deaths, stops and early looks at one chat, against what may come of it.

After each step: a parked turn is in nobody's hands, at most one answer is recorded and it is the one that was told to
count, and a call has begun only behind a yes.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine
from typing import Any, ClassVar, TypeVar

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from shared.errors import LeaseLost, TurnStopped
from shared.ids import nonce
from shared.messages.live import TurnEvent
from shared.messages.transcript import (
    ApprovalEntry,
    AssistantEntry,
    DecisionEntry,
    IntentEntry,
    LedgerEntry,
    decode_ledger,
)
from shared.store import keys
from shared.store.client.redis_client import RedisClient
from shared.store.turns.approvals import ApprovalAnswer, Approvals
from shared.store.turns.inbox import Inbox
from shared.store.turns.queue import Claim, LeaseQueue
from shared.store.turns.turn_writes import Turns
from tests.helpers.build import reply, say
from tests.helpers.parked import ask

T = TypeVar("T")
SESSION = "web:owner/a"
MEMBER = keys.turn(SESSION)
LONG_ENOUGH = 7
"""So many steps a turn has at least, or most would end before they ask."""

seldom = st.sampled_from([False, False, False, True])
held = precondition(lambda self: self.claim is not None)
there = precondition(lambda self: self.turn > 0)


class Asking(RuleBasedStateMachine):
    """One chat, its newest worker, and one that lost its lease."""

    url: ClassVar[str]
    runner: ClassVar[asyncio.Runner]

    def __init__(self) -> None:
        super().__init__()
        self.turn = 0
        self.stopped = False
        self.claim: Claim | None = None
        self.lost: Claim | None = None
        self.answers: dict[str, bool] = {}
        """What was answered to which question, as those were told whose answer counts."""
        self.run(self._open())

    async def _open(self) -> None:
        self.client = RedisClient(self.url)
        await self.client.command("FLUSHALL")
        self.turns, self.inbox = Turns(self.client), Inbox(self.client)
        self.approvals = Approvals(self.client)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.runner.run(work)

    def teardown(self) -> None:
        self.run(self.client.close())

    async def _ledger(self) -> list[LedgerEntry]:
        return [decode_ledger(one[1]) for _, one in await self.client.command("XRANGE", keys.ledger(SESSION), "-", "+")]

    def ledger(self) -> list[LedgerEntry]:
        return self.run(self._ledger())

    @precondition(lambda self: self.turn == 0)
    @rule()
    def a_message_comes(self) -> None:
        self.turn = self.run(say(self.inbox)).turn
        self.answers.clear()

    @there
    @rule(early=seldom)
    def a_worker_takes_what_is_due(self, early: bool) -> None:
        """With `early` before its time, as when its score was lost; a lease that is held lapses by that."""
        if early:
            self.run(self.client.command("ZADD", keys.queue("turns"), "XX", 1, MEMBER))
        claims = self.run(LeaseQueue(self.client, "turns", owner=nonce(), lease_s=1000).acquire(1))
        if claims:
            self.lost, self.claim = self.claim or self.lost, claims[0]

    @held
    @rule(late=seldom, lost=seldom)
    def the_worker_goes_on(self, late: bool, lost: bool) -> None:
        """As worker/agent does it: asks, waits on, begins behind a yes, or goes on without. A `late` question is over
        at once. A worker that lost its lease writes nothing."""
        claim = self.lost if lost and self.lost is not None else self.claim
        assert claim is not None
        before = self.ledger()
        try:
            parked = self.run(self._go_on(claim, before, late=late))
        except LeaseLost:
            assert claim is self.lost
            assert self.ledger() == before
            return
        except TurnStopped:
            self.stopped = True
            return
        assert claim is self.claim
        if parked:
            self.claim = None

    async def _go_on(self, claim: Claim, steps: list[LedgerEntry], *, late: bool) -> bool:
        at = len(steps)
        match steps[-1] if steps else None:
            case ApprovalEntry() as question:
                return await self._park(claim, at, question, late=late)
            case DecisionEntry(yes=True, call_id=call):
                await self.turns.append_step(claim, at + 1, IntentEntry(call_id=call, turn=self.turn))
            case AssistantEntry():
                question = ApprovalEntry(
                    id=f"{self.turn:04x}{at:04x}", call_id=f"c{at}", turn=self.turn, tool="exec", digest="d",
                    arguments="{}", people=("owner",),
                )  # fmt: skip
                return await self._park(claim, at + 1, question, late=late)
            case _:
                await self.turns.append_step(claim, at + 1, AssistantEntry(content="more", turn=self.turn))
        return False

    async def _park(self, claim: Claim, step: int, question: ApprovalEntry, *, late: bool) -> bool:
        wait_s = 0.0 if late else 1000.0
        waits = await ask(self.turns, claim, step, question, wait_s=wait_s)
        if not waits:
            await self.turns.append_step(claim, step + 1, AssistantEntry(content="nobody answered", turn=self.turn))
        return waits

    @there
    @rule(yes=st.booleans(), stranger=seldom, old=seldom)
    def somebody_answers(self, yes: bool, stranger: bool, old: bool) -> None:
        """A question of this turn, the newest or the one before, by who may say so or not."""
        asked = [one.id for one in self.ledger() if isinstance(one, ApprovalEntry)]
        if not asked:
            return
        id, before = asked[-2 if old and len(asked) > 1 else -1], self.ledger()
        answered = ApprovalAnswer(yes=yes, sender="mallory" if stranger else "owner")
        settled = self.run(self.approvals.resolve(SESSION, id, answered, now_ms=1))
        if settled == "done":
            assert not stranger
            assert id not in self.answers
            assert self.claim is None
            self.answers[id] = yes
        else:
            assert self.ledger() == before
        if settled == "used":
            assert id in self.answers

    @there
    @rule(really=seldom)
    def somebody_stops_it(self, really: bool) -> None:
        if really:
            self.run(self.inbox.stop(SESSION))

    @held
    @rule()
    def the_turn_ends(self) -> None:
        if len(self.ledger()) < LONG_ENOUGH and not self.stopped:
            return
        assert self.claim is not None
        with contextlib.suppress(LeaseLost):
            lines = [reply("x", self.turn)]
            self.run(self.turns.commit(self.claim, history=[], lines=lines, event=TurnEvent(self.turn, "done")))
        self.turn, self.claim, self.lost, self.stopped = 0, None, None, False

    @invariant()
    def the_answer_given_is_the_one_recorded(self) -> None:
        steps, question = self.ledger(), ""
        recorded: dict[str, bool] = {}
        for at, step in enumerate(steps):
            match step:
                case ApprovalEntry(id=id):
                    question = id
                case DecisionEntry(yes=yes):
                    assert isinstance(steps[at - 1], ApprovalEntry), "an answer stands behind its question"
                    assert question not in recorded
                    recorded[question] = yes
                case IntentEntry():
                    assert recorded[question], "nothing begins without a yes"
        if self.turn:
            assert recorded == self.answers

    @invariant()
    def who_waits_has_no_lease(self) -> None:
        lease = self.run(self.client.command("HGET", keys.leases("turns"), MEMBER))
        assert (lease.decode() if lease else None) == (self.claim.lease_id if self.claim else None)
        if self.turn:
            assert self.run(self.client.command("ZSCORE", keys.queue("turns"), MEMBER)) is not None


def test_every_sequence_of_questions_and_answers_has_one_answer_each(redis_url: str) -> None:
    """Nothing begins without a yes, and a yes is used once."""
    with asyncio.Runner() as loop:

        class Here(Asking):
            url = redis_url
            runner = loop

        everyday = settings(
            max_examples=100, stateful_step_count=80, deadline=None, derandomize=True, database=None, print_blob=True
        )
        run_state_machine_as_test(Here, settings=everyday)
