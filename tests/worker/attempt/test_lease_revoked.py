"""A turn whose lease a person takes away with `/new`: it ends at once, quietly, and nothing of it comes back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from shared.errors import TurnStopped
from shared.ids import nonce
from shared.messages.outbound import OutboundMessage
from shared.settings import AgentSettings
from shared.store import keys
from shared.store.client.redis_client import RedisClient
from shared.store.delivery.fanout import Fanout
from shared.store.delivery.outbox import Outbox
from shared.store.sessions.session import Change, Sessions
from shared.store.turns.inbox import Inbox
from shared.store.turns.queue import LeaseQueue
from shared.store.turns.turn_writes import Turns
from tests.helpers.build import message, say
from tests.helpers.wait import eventually
from worker.agent.model.model import TokenUsage
from worker.agent.turn import AgentResult
from worker.attempt.run_turn import RunTurn
from worker.lease.lease_loop import LeaseLoop
from worker.turn.conversation import Conversation
from worker.turn.journal import TurnJournal
from worker.turn.live_updates import LiveUpdates

SESSION = "web:owner/a"


class Agent:
    """Answers `quick` at once; everything else takes for ever, or does not even notice that it should end."""

    def __init__(self, *, stubborn: bool = False) -> None:
        self.stubborn = stubborn
        self.begun: list[str] = []
        self.ended: list[str] = []
        self.go_on = asyncio.Event()

    async def __call__(self, conversation: Conversation, _journal: TurnJournal, show: LiveUpdates) -> AgentResult:
        text = conversation.message.content
        self.begun.append(text)
        if text != "quick":
            await show.add_text("so far")
            await self._wait()
        self.ended.append(text)
        return AgentResult(content=f"{text}!", entries=(conversation.entry,), rounds=1, usage=TokenUsage())

    async def _wait(self) -> None:
        while not self.go_on.is_set():
            try:
                await self.go_on.wait()
            except asyncio.CancelledError:
                if not self.stubborn:
                    raise


def make_loop(client: RedisClient, agent: Agent) -> LeaseLoop:
    runner = RunTurn(client, Turns(client), agent, settings=AgentSettings())
    return LeaseLoop(LeaseQueue(client, "turns", owner=nonce(), lease_s=60), slots=4, run=runner)


@asynccontextmanager
async def hearing(client: RedisClient, loop: LeaseLoop) -> AsyncIterator[None]:
    """The control channel, as a worker hears it."""

    def on_event(data: bytes) -> None:
        member, _, _ = data.decode().rpartition(" ")
        for lease in loop.find(member):
            lease.interrupt(TurnStopped())

    news = Fanout(client, on_gap=loop.renew_once)
    await news.subscribe(keys.CONTROL, on_event)
    running = asyncio.create_task(news.run())
    await eventually(lambda: client.command("PUBSUB", "CHANNELS", keys.CONTROL))
    try:
        yield
    finally:
        running.cancel()


async def begin_anew(client: RedisClient, change: Change = "new") -> None:
    """`/new`, as a gateway answers it."""
    sessions, command = Sessions(client), message("/new", id=nonce())
    line = OutboundMessage(content="New conversation.", turn=0, in_reply_to=(command.id,), kind="command")
    await sessions.answer_command(command, line, await sessions.state(SESSION), change=change)


async def replies(client: RedisClient) -> list[tuple[str, str]]:
    found = [one.line for one in await Outbox(client).read_after(SESSION, after=0)]
    return [(line.kind, line.content) for line in found if isinstance(line, OutboundMessage)]


async def nothing_counted(client: RedisClient) -> None:
    fields = await client.command("HMGET", keys.session(SESSION), "errors", "crashes", "stop")
    assert fields == [None, None, None]
    assert await client.command("EXISTS", keys.DEAD, keys.ledger(SESSION)) == 0


@pytest.mark.parametrize("change", ["new", "forget"])
@pytest.mark.parametrize("by", ["the control channel", "a renewal"])
async def test_a_turn_whose_lease_is_revoked_ends_at_once_without_a_trace(
    client: RedisClient, by: str, change: Change
) -> None:
    """No answer, no apology, no crash counted, no dead letter; the chat's next message is answered as if new."""
    agent = Agent()
    loop = make_loop(client, agent)
    await say(Inbox(client), "slow")
    await loop.claim_once()
    await eventually(lambda: agent.begun == ["slow"])
    if by == "the control channel":
        async with hearing(client, loop):
            await begin_anew(client, change)
            await eventually(lambda: loop.running == 0)
    else:
        await begin_anew(client, change)
        await loop.renew_once()
        await eventually(lambda: loop.running == 0)
    assert agent.ended == []
    assert await replies(client) == [("command", "New conversation.")]
    await nothing_counted(client)
    assert not await loop.claim_once()
    await say(Inbox(client), "quick")
    await loop.claim_once()
    await eventually(lambda: loop.running == 0)
    assert await replies(client) == [("command", "New conversation."), ("reply", "quick!")]
    await nothing_counted(client)


async def test_a_turn_that_missed_the_event_is_refused_at_its_commit(client: RedisClient) -> None:
    """It was finished a moment too late: its answer belongs to a conversation that is over."""
    agent = Agent()
    loop = make_loop(client, agent)
    await say(Inbox(client), "slow")
    await loop.claim_once()
    await eventually(lambda: agent.begun == ["slow"])
    await begin_anew(client)
    agent.go_on.set()
    await eventually(lambda: loop.running == 0)
    assert agent.ended == ["slow"]
    assert await replies(client) == [("command", "New conversation.")]
    assert await client.command("EXISTS", keys.history(SESSION)) == 0
    await nothing_counted(client)


async def test_the_next_message_does_not_wait_for_an_old_turn_that_will_not_end(client: RedisClient) -> None:
    """The same worker runs both for a while; each lease is its own."""
    agent = Agent(stubborn=True)
    loop = make_loop(client, agent)
    await say(Inbox(client), "slow")
    await loop.claim_once()
    await eventually(lambda: agent.begun == ["slow"])
    async with hearing(client, loop):
        await begin_anew(client)
    await say(Inbox(client), "quick")
    await loop.claim_once()
    await eventually(lambda: agent.ended == ["quick"])
    await eventually(lambda: loop.running == 1)
    agent.go_on.set()
    await eventually(lambda: loop.running == 0)
    assert await replies(client) == [("command", "New conversation."), ("reply", "quick!")]
    await nothing_counted(client)
