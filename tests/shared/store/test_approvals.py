"""Questions whether a tool may run: the turn waits without a slot, and exactly one answer counts."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from shared.errors import LeaseLost, TurnLimited, TurnStopped
from shared.ids import nonce
from shared.messages.live import TurnEvent
from shared.messages.outbound import OutboundMessage, UserLine
from shared.messages.schedule import BACKGROUND
from shared.messages.transcript import ApprovalEntry, AssistantEntry, DecisionEntry, ToolEntry, decode_ledger
from shared.settings.sections.chats import Busy
from shared.store import keys
from shared.store.client.redis_client import RedisClient, Value
from shared.store.client.scripts import Script
from shared.store.delivery.outbox import Outbox
from shared.store.sessions.session import Sessions
from shared.store.turns.approvals import ApprovalAnswer, ApprovalOutcome, Approvals
from shared.store.turns.inbox import Accepted, Inbox, InboxLimits
from shared.store.turns.queue import Claim, LeaseQueue
from shared.store.turns.turn_writes import LEDGER_CAP_BYTES, Turns
from tests.helpers.build import message, reply
from tests.helpers.parked import ask
from tests.helpers.questions import QUESTION
from tests.helpers.wait import eventually

SESSION = "web:owner/a"


class Chat:
    """One chat whose turn asks, its gateways and its workers."""

    def __init__(self, client: RedisClient, busy: Busy = "queue") -> None:
        self.client = client
        limits = InboxLimits(busy=busy, merge_ms=0)
        self.inbox, self.turns = Inbox(client, limits), Turns(client, limits)
        self.approvals, self.sessions = Approvals(client, limits), Sessions(client, limits)

    async def say(self, id: str) -> Accepted:
        return await self.inbox.ingest(message(id, id=id), log_line=UserLine(id=id, text=id), principal="owner")

    async def acquire(self) -> Claim | None:
        claims = await LeaseQueue(self.client, "turns", owner=nonce(), lease_s=30).acquire(1)
        return claims[0] if claims else None

    async def begin(self) -> Claim:
        """A turn that has come as far as its reply."""
        await self.say("a")
        claim = await self.acquire()
        assert claim is not None
        await self.turns.append_step(claim, 1, AssistantEntry(content="I ask", turn=1))
        return claim

    async def park(
        self, claim: Claim, question: ApprovalEntry = QUESTION, *, step: int = 2, wait_s: float = 600, cap: int = 0
    ) -> bool:
        return await ask(self.turns, claim, step, question, wait_s=wait_s, cap_bytes=cap or LEDGER_CAP_BYTES)

    async def answer(
        self, id: str = QUESTION.id, *, yes: bool = True, by: str = "owner", digest: str = ""
    ) -> ApprovalOutcome:
        return await self.approvals.resolve(SESSION, id, ApprovalAnswer(yes=yes, sender=by), now_ms=1, digest=digest)

    async def lines(self) -> list[OutboundMessage]:
        found = [one.line for one in await Outbox(self.client).read_after(SESSION, after=0)]
        return [line for line in found if isinstance(line, OutboundMessage)]

    async def commit(self, claim: Claim) -> None:
        assert claim.turn is not None
        n = claim.turn.n
        await self.turns.commit(claim, history=[], lines=[reply("x", n)], event=TurnEvent(n, "done"))


class Twice(RedisClient):
    """Runs every script again, as is done when its answer got lost."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.answers: list[Any] = []

    async def evaluate(self, script: Script, call: tuple[Value, ...]) -> Any:
        for _ in range(2):
            self.answers.append(await super().evaluate(script, call))
        return self.answers[-1]


@pytest.fixture
def chat(client: RedisClient) -> Chat:
    return Chat(client)


def steps(claim: Claim | None) -> list[object]:
    assert claim is not None
    assert claim.turn is not None
    return [decode_ledger(step) for step in claim.turn.ledger]


async def test_a_turn_that_asks_holds_no_lease_and_is_not_due(chat: Chat) -> None:
    """The question is a step of its ledger and a line of its chat; nothing is counted against its message."""
    claim = await chat.begin()
    assert await chat.park(claim)
    assert await chat.acquire() is None
    assert await chat.client.command("HGET", keys.leases("turns"), keys.turn(SESSION)) is None
    [line] = await chat.lines()
    asked = line.approval
    assert asked is not None
    assert (line.kind, line.turn, line.buttons) == ("notice", 1, ("/yes 0123456789", "/no 0123456789"))
    assert (asked.state, asked.tool, asked.arguments, asked.digest) == ("open", "exec", QUESTION.arguments, "d" * 64)
    score = await chat.client.command("ZSCORE", keys.queue("turns"), keys.turn(SESSION))
    assert asked.expires_at == line.at + 600_000 == int(score)
    counts = await chat.client.command("HMGET", keys.session(SESSION), "errors", "crashes", "away")
    assert counts == [None, None, None]
    assert (await chat.sessions.state(SESSION)).open_question is not None


@pytest.mark.parametrize("yes", [True, False])
async def test_an_answer_makes_the_turn_due_and_is_in_its_ledger(chat: Chat, yes: bool) -> None:
    """Any worker finds it there, once, with who said it; the chat has a line of it."""
    await chat.park(await chat.begin())
    await chat.client.command("DEL", keys.wake("turns"))
    assert await chat.answer(yes=yes) == "done"
    assert await chat.client.command("LLEN", keys.wake("turns")) == 1
    claim = await chat.acquire()
    _, question, decision = steps(claim)
    assert isinstance(question, ApprovalEntry)
    assert msgspec.structs.replace(question, at=0, expires_at=0) == QUESTION
    assert isinstance(decision, DecisionEntry)
    assert (decision.call_id, decision.turn, decision.yes, decision.by) == ("c1", 1, yes, "owner")
    answered = (await chat.lines())[-1].approval
    assert answered is not None
    assert (answered.id, answered.state, answered.by) == (QUESTION.id, "yes" if yes else "no", "owner")
    assert claim is not None
    await chat.turns.append_step(claim, 4, ToolEntry(call_id="c1", name="exec", content="ran", turn=1))
    await chat.commit(claim)
    assert await chat.client.command("EXISTS", keys.ledger(SESSION)) == 0


async def test_what_is_no_answer_is_refused_and_changes_nothing(chat: Chat) -> None:
    """Unknown, a stranger's, about other arguments, a second one, one after the turn: each by its name."""
    assert await chat.answer() == "unknown"
    await chat.park(await chat.begin())
    assert await chat.answer("ffff") == "unknown"
    assert await chat.answer("not hex!") == "unknown"
    assert await chat.answer(by="mallory") == "not_allowed"
    assert await chat.answer(digest="e" * 64) == "changed"
    assert await chat.acquire() is None
    assert await chat.answer(digest="d" * 64) == "done"
    assert await chat.answer() == "used"
    assert await chat.answer(yes=False) == "used"
    claim = await chat.acquire()
    assert len(steps(claim)) == 3
    assert claim is not None
    await chat.commit(claim)
    assert await chat.answer() == "used"
    assert len(await chat.lines()) == 3


async def test_two_answers_at_once_are_one(chat: Chat) -> None:
    """Two gateways, a yes and a no: one wins, whole."""
    await chat.park(await chat.begin())
    texts = await asyncio.gather(*(chat.answer(yes=bool(at % 2)) for at in range(10)))
    assert sorted(texts) == ["done"] + ["used"] * 9
    decisions = [step for step in steps(await chat.acquire()) if isinstance(step, DecisionEntry)]
    assert [one.yes for one in decisions] == [bool(texts.index("done") % 2)]


async def test_a_late_answer_is_refused_and_the_turn_goes_on(chat: Chat) -> None:
    """When its time is over the turn is due by itself, keeps its lease, and is told that nobody answered."""
    await chat.park(await chat.begin(), wait_s=0.2)

    found: list[Claim] = []

    async def due() -> bool:
        claim = await chat.acquire()
        found.extend([claim] if claim else [])
        return bool(found)

    await eventually(due, within_s=10)
    assert await chat.answer() == "late"
    [claim] = found
    [_, question] = steps(claim)
    assert isinstance(question, ApprovalEntry)
    assert not await chat.park(claim, question)
    await chat.turns.append_step(claim, 3, ToolEntry(call_id="c1", name="exec", content="nobody", turn=1))
    assert await chat.answer() == "late"
    assert len(await chat.lines()) == 1


async def test_who_looks_too_early_goes_on_waiting(chat: Chat) -> None:
    """A worker that takes a parked turn before its time gives it back, with the same question and no second line."""
    await chat.park(await chat.begin())
    await chat.client.command("ZADD", keys.queue("turns"), 1, keys.turn(SESSION))
    claim = await chat.acquire()
    [_, question] = steps(claim)
    assert isinstance(question, ApprovalEntry)
    assert claim is not None
    assert await chat.answer() == "held"
    assert await chat.park(claim, question)
    score = await chat.client.command("ZSCORE", keys.queue("turns"), keys.turn(SESSION))
    assert int(score) == question.expires_at
    assert len(await chat.lines()) == 1
    assert await chat.answer() == "done"


async def test_a_lost_answer_of_each_script_can_be_asked_for_again(chat: Chat, redis_url: str) -> None:
    """Both are called again by the client when Redis was away: nothing is asked or recorded twice."""
    claim = await chat.begin()
    assert await chat.park(claim)
    assert await chat.park(claim), "the same again, without its lease"
    assert len(await chat.lines()) == 1
    twice = Twice(redis_url)
    settled = await Approvals(twice).resolve(SESSION, QUESTION.id, ApprovalAnswer(yes=True, sender="owner"), now_ms=1)
    await twice.close()
    assert (settled, twice.answers) == ("done", [b"done", b"done"])
    assert len(steps(await chat.acquire())) == 3
    assert len(await chat.lines()) == 2
    with pytest.raises(LeaseLost):
        await chat.park(claim)


async def test_stop_ends_a_parked_turn_at_once_and_nothing_behind_it(chat: Chat) -> None:
    """The yes that comes then is refused; and a turn that was told to stop asks nothing any more."""
    claim = await chat.begin()
    await chat.say("b")
    await chat.park(claim)
    assert await chat.acquire() is None
    await chat.inbox.stop(SESSION)
    assert await chat.answer() == "over"
    again = await chat.acquire()
    assert again is not None
    assert again.turn is not None
    assert again.turn.stop == 1
    with pytest.raises(TurnStopped):
        await chat.park(again, msgspec.structs.replace(QUESTION, id="aa"), step=3)
    await chat.commit(again)
    following = await chat.acquire()
    assert following is not None
    assert following.turn is not None
    assert (following.turn.n, following.turn.stop) == (2, 0)


async def test_a_turn_that_is_stopped_before_it_asks_does_not_wait(chat: Chat) -> None:
    """Or /stop would have to wait for the time of an answer."""
    claim = await chat.begin()
    await chat.inbox.stop(SESSION)
    with pytest.raises(TurnStopped):
        await chat.park(claim)
    assert await chat.lines() == []


async def test_interrupt_takes_the_place_of_a_parked_turn(client: RedisClient) -> None:
    """The new message ends it at once; the question is over."""
    chat = Chat(client, "interrupt")
    await chat.park(await chat.begin())
    await chat.say("b")
    assert await chat.answer() == "over"
    claim = await chat.acquire()
    assert claim is not None
    assert claim.turn is not None
    assert (claim.turn.n, claim.turn.stop) == (1, 1)


@pytest.mark.parametrize("busy", ["queue", "steer", "merge"])
async def test_other_messages_wait_while_a_turn_is_parked(client: RedisClient, busy: Busy) -> None:
    """None of them is run before it, and none makes it due."""
    chat = Chat(client, busy)
    await chat.park(await chat.begin())
    await chat.say("b")
    assert await chat.acquire() is None
    assert await chat.answer() == "done"
    claim = await chat.acquire()
    assert claim is not None
    assert claim.turn is not None
    assert claim.turn.n == 1


async def test_new_drops_the_question_with_its_turn(chat: Chat) -> None:
    """Nothing of the ended conversation can be answered."""
    await chat.park(await chat.begin())
    state = await chat.sessions.state(SESSION)
    line = OutboundMessage(content="New.", turn=1, kind="command")
    await chat.sessions.answer_command(message("/new"), line, state, change="new")
    assert await chat.answer() == "over"
    assert (await chat.sessions.state(SESSION)).open_question is None


async def test_a_question_that_does_not_fit_into_the_ledger_ends_the_turn(chat: Chat) -> None:
    """As any step does, and nothing is asked."""
    claim = await chat.begin()
    with pytest.raises(TurnLimited):
        await chat.park(claim, cap=60)
    assert await chat.lines() == []


async def test_a_turn_whose_steps_the_server_lost_asks_nothing(chat: Chat) -> None:
    """Whoever acquires next begins where the ledger really ends, and at once."""
    claim = await chat.begin()
    await chat.client.command("DEL", keys.ledger(SESSION), keys.wake("turns"))
    with pytest.raises(LeaseLost):
        await chat.park(claim)
    assert await chat.client.command("LLEN", keys.wake("turns")) == 1
    assert steps(await chat.acquire()) == []


async def test_a_question_is_not_asked_where_another_step_stands(chat: Chat) -> None:
    """It is no earlier try of the same question: the steps went on without it."""
    claim = await chat.begin()
    await chat.turns.append_step(claim, 2, AssistantEntry(content="something else", turn=1))
    with pytest.raises(LeaseLost):
        await chat.park(claim)
    assert await chat.lines() == []


async def test_a_question_that_names_nobody_may_be_answered_by_whoever_may_write_there(chat: Chat) -> None:
    """Such as that of a schedule."""
    await chat.park(await chat.begin(), msgspec.structs.replace(QUESTION, people=()))
    assert await chat.answer(by="somebody") == "done"


@pytest.mark.parametrize("person", [False, True])
async def test_a_turn_of_the_background_waits_there_and_comes_back_as_a_persons(chat: Chat, person: bool) -> None:
    """Whoever answered waits for it. A message behind it does not make it due before."""
    tick = msgspec.structs.replace(message("tick"), metadata={BACKGROUND: "1"})
    await chat.inbox.ingest(tick, internal=True)
    [claim] = await LeaseQueue(chat.client, "turns", owner=nonce(), lease_s=30).acquire(1)
    await chat.turns.append_step(claim, 1, AssistantEntry(content="I ask", turn=1))
    assert await chat.park(claim)
    assert await chat.client.command("ZSCORE", keys.queue("background"), keys.turn(SESSION)) is not None
    if person:
        await chat.say("b")
    assert await chat.acquire() is None
    assert await chat.answer() == "done"
    assert await chat.client.command("EXISTS", keys.queue("background")) == 0
    whose = await chat.client.command("HGET", keys.FAIR_KEYS, keys.turn(SESSION))
    assert b"background" not in (whose or b"")
    assert len(steps(await chat.acquire())) == 3


async def test_a_turn_that_was_answered_has_its_place_of_before(chat: Chat) -> None:
    """Those who came while a person thought do not stand before it; what it waits is counted from the answer."""
    claim = await chat.begin()
    await chat.park(claim)
    await chat.inbox.ingest(message(chat="owner/b"), principal="owner")
    await chat.client.command("HSET", keys.session(SESSION), "place", 1000)
    await chat.answer()
    again = await chat.acquire()
    assert again is not None
    assert again.session == SESSION
    assert again.waited_ms < 60_000


async def test_a_turn_that_was_answered_keeps_its_place_though_its_person_has_had_a_turn_since(chat: Chat) -> None:
    """It was begun before; what its person was given meanwhile does not count against it."""

    async def write(who: str, where: str) -> None:
        await chat.inbox.ingest(msgspec.structs.replace(message(chat=f"{who}/{where}"), sender_id=who))

    await write("owner", "a")
    claim = await chat.acquire()
    assert claim is not None
    await chat.turns.append_step(claim, 1, AssistantEntry(content="I ask", turn=1))
    await chat.park(claim)
    await write("owner", "b")
    await write("q", "a")
    for n, session in enumerate(("web:owner/b", "web:q/a"), start=1):
        await chat.client.command("ZADD", keys.queue("turns"), 1000 * n, keys.turn(session))
    await chat.client.command("HSET", keys.session(SESSION), "place", 500)
    begun = await chat.acquire()
    assert begun is not None
    assert begun.session == "web:owner/b"
    assert await chat.answer() == "done"
    again = await chat.acquire()
    assert again is not None
    assert again.session == SESSION


async def test_an_answer_to_a_question_that_the_server_lost_is_refused(chat: Chat) -> None:
    """Another step stands where it stood: the turn went on without it."""
    await chat.park(await chat.begin())
    ledger = await chat.client.command("XRANGE", keys.ledger(SESSION), "-", "+")
    await chat.client.command("DEL", keys.ledger(SESSION))
    for id in (ledger[0][0], ledger[1][0]):
        await chat.client.command("XADD", keys.ledger(SESSION), id, *ledger[0][1])
    assert await chat.answer() == "over"
    assert len(await chat.lines()) == 1
