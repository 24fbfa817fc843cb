"""Functions of a program: the turn waits without a slot, and exactly one submission of all results counts."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import pytest

from shared.errors import LeaseLost, TurnLimited
from shared.ids import nonce
from shared.messages.outbound import OutboundMessage, UserLine, WaitingCalls
from shared.messages.transcript import AssistantEntry, CallsEntry, ToolCall, ToolEntry, decode_ledger
from shared.settings.sections.chats import Busy
from shared.store import keys
from shared.store.client.redis_client import RedisClient
from shared.store.delivery.outbox import Outbox
from shared.store.turns.approvals import ApprovalAnswer, Approvals
from shared.store.turns.client_calls import CLIENT_TOOLS, ClientCalls, Submitted
from shared.store.turns.inbox import Inbox, InboxLimits
from shared.store.turns.queue import Claim, LeaseQueue
from shared.store.turns.turn_writes import LEDGER_CAP_BYTES, Turns
from tests.helpers.build import message
from tests.helpers.wait import eventually

SESSION = "web:owner/a"
ASKED = CallsEntry(id="abc1", turn=1, calls=(ToolCall("c1", "f", "{}"), ToolCall("c2", "g", "{}")))
BOTH = {"c2": "two", "c1": "one"}


class Chat:
    """One chat whose turn asks its program."""

    def __init__(self, client: RedisClient, busy: Busy = "queue") -> None:
        self.client = client
        limits = InboxLimits(busy=busy)
        self.inbox, self.turns, self.calls = Inbox(client, limits), Turns(client, limits), ClientCalls(client, limits)

    async def say(self, id: str) -> str:
        accepted = await self.inbox.ingest(message(id, id=id), log_line=UserLine(id=id, text=id), principal="owner")
        return "rejected" if accepted.rejected else "accepted"

    async def acquire(self) -> Claim | None:
        claims = await LeaseQueue(self.client, "turns", owner=nonce(), lease_s=30).acquire(1)
        return claims[0] if claims else None

    async def park(self, claim: Claim, *, wait_s: float = 600, cap: int = LEDGER_CAP_BYTES) -> bool:
        line = OutboundMessage(content="", turn=1, kind="notice", calls=WaitingCalls(calls=ASKED.calls))
        return await self.turns.park(claim, "turns", 2, ASKED, line, wait_s=wait_s, cap_bytes=cap)

    async def parked(self, *, wait_s: float = 600) -> Claim:
        await self.say("a")
        claim = await self.acquire()
        assert claim is not None
        await self.turns.append_step(claim, 1, AssistantEntry(content=None, turn=1, tool_calls=ASKED.calls))
        assert await self.park(claim, wait_s=wait_s)
        return claim

    async def submit(self, outputs: Mapping[str, str] = BOTH, *, request: str = "", cap: int = LEDGER_CAP_BYTES) -> str:
        done = await self.calls.submit(SESSION, outputs, request=request or nonce(), cap_bytes=cap)
        return done.outcome

    async def ledger(self) -> list[object]:
        entries = await self.client.command("XRANGE", keys.ledger(SESSION), "-", "+")
        return [decode_ledger(fields[1]) for _, fields in entries]


@pytest.fixture
def chat(client: RedisClient) -> Chat:
    return Chat(client)


async def test_results_become_steps_in_the_order_of_the_calls(chat: Chat) -> None:
    """Marked as text of strangers; the turn is due at once. Until then nobody can claim it."""
    claim = await chat.parked()
    assert await chat.acquire() is None
    assert await chat.calls.waiting(SESSION) == ("c1", "c2")
    [line] = [one.line for one in await Outbox(chat.client).read_after(SESSION, after=1)]
    assert isinstance(line, OutboundMessage)
    assert line.calls is not None
    assert line.calls.expires_at == line.at + 600_000
    assert await chat.submit() == "done"
    assert await chat.calls.waiting(SESSION) == ()
    steps = [entry for entry in await chat.ledger() if isinstance(entry, ToolEntry)]
    assert [(one.call_id, one.name, one.content, one.ok, one.sources) for one in steps] == [
        ("c1", "f", "one", True, (CLIENT_TOOLS,)),
        ("c2", "g", "two", True, (CLIENT_TOOLS,)),
    ]
    again = await chat.acquire()
    assert again is not None
    assert again.turn is not None
    assert len(again.turn.ledger) == 4
    with pytest.raises(LeaseLost):
        await chat.park(claim)


async def test_a_repeated_park_waits_on(chat: Chat) -> None:
    """The reply to the first was lost: the question is there once, with its first deadline."""
    claim = await chat.parked()
    assert await chat.park(claim)
    assert len(await chat.ledger()) == 2


@pytest.mark.parametrize(
    ("outputs", "outcome", "ids"),
    [
        ({"c1": "x"}, "missing", ("c2",)),
        ({}, "missing", ("c1", "c2")),
        (BOTH | {"c3": "x"}, "unknown", ("c3",)),
    ],
)
async def test_all_results_and_no_others(
    chat: Chat, outputs: dict[str, str], outcome: str, ids: tuple[str, ...]
) -> None:
    """What is wrong is named, and nothing is written."""
    await chat.parked()
    found = await chat.calls.submit(SESSION, outputs, request="r", cap_bytes=LEDGER_CAP_BYTES)
    assert (found.outcome, found.ids) == (outcome, ids)
    assert len(await chat.ledger()) == 2
    assert await chat.submit(request="r") == "done"


async def test_one_of_many_submissions_counts(chat: Chat) -> None:
    """At once from many gateways; the one whose reply was lost hears the same again, also later."""
    await chat.parked()
    requests = [f"r{at}" for at in range(8)]
    outcomes = await asyncio.gather(*(chat.submit(request=one) for one in requests))
    assert sorted(outcomes) == ["done"] + ["used"] * 7
    won = requests[outcomes.index("done")]
    again = await chat.calls.submit(SESSION, BOTH, request=won, cap_bytes=LEDGER_CAP_BYTES)
    assert again == Submitted("known", 1)
    assert len(await chat.ledger()) == 4


async def test_late_results_do_not_count(chat: Chat) -> None:
    """Whoever claims the turn then keeps its lease, and goes on without them."""
    await chat.parked(wait_s=0.01)

    async def due() -> Claim | None:
        return await chat.acquire()

    claim = await eventually(due, what="the end of the time")
    assert await chat.submit() == "late"
    assert claim is not None
    assert not await chat.park(claim)


async def test_a_turn_that_was_stopped_takes_none(chat: Chat) -> None:
    await chat.parked()
    assert await chat.inbox.stop(SESSION) == 1
    assert await chat.submit() == "over"
    assert await chat.acquire() is not None


@pytest.mark.parametrize("busy", ["queue", "steer", "reject", "interrupt"])
async def test_a_new_message_ends_the_wait(client: RedisClient, busy: Busy) -> None:
    """Whatever is done while a turn runs: this one waits for a program that has gone on."""
    chat = Chat(client, busy)
    await chat.parked()
    assert await chat.say("b") == "accepted"
    assert await chat.submit() == "over"
    claim = await chat.acquire()
    assert claim is not None
    assert claim.turn is not None
    assert (claim.turn.n, claim.turn.stop) == (1, 1)


async def test_a_ledger_takes_no_more_than_it_may_have(chat: Chat) -> None:
    """Neither with the question nor with the results."""
    await chat.parked()
    assert await chat.submit(cap=300) == "full"
    assert await chat.submit() == "done"
    await chat.client.command("FLUSHALL")
    await chat.say("a")
    claim = await chat.acquire()
    assert claim is not None
    await chat.turns.append_step(claim, 1, AssistantEntry(content=None, turn=1))
    with pytest.raises(TurnLimited):
        await chat.park(claim, cap=50)


async def test_a_yes_is_no_result(chat: Chat) -> None:
    """And without a turn nobody waits."""
    assert await chat.submit() == "unknown"
    assert await chat.calls.waiting(SESSION) == ()
    await chat.parked()
    found = await Approvals(chat.client).resolve(SESSION, "abc1", ApprovalAnswer(yes=True, sender="owner"), now_ms=1)
    assert found == "used"
