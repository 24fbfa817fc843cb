"""How turns end that further messages have joined: every one of them is answered, whatever the end."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from shared.ids import nonce
from shared.media.store import MediaStore
from shared.messages.outbound import OutboundMessage
from shared.messages.transcript import UserEntry, decode_transcript
from shared.settings import AgentSettings, MediaSettings
from shared.store import keys
from shared.store.client.redis_client import RedisClient
from shared.store.delivery.outbox import Outbox
from shared.store.turns.inbox import Inbox, InboxLimits
from shared.store.turns.queue import Claim, LeaseQueue
from shared.store.turns.turn_writes import JoinedMessages, Turns
from tests.helpers.build import say
from tests.helpers.scripted_model import ScriptedModel, call, calls
from tests.helpers.wait import eventually
from worker.agent.loop import run_agent
from worker.agent.model.model import LLMResponse, ModelRequest, OnDelta
from worker.agent.tools.toolbox import Toolbox
from worker.agent.turn import AgentResult, AgentRunSpec
from worker.attempt.run_turn import RunTurn
from worker.guards.chats import ChatPolicy
from worker.lease.lease_loop import LeaseLoop
from worker.tools.message import MessageTool
from worker.turn.conversation import Conversation
from worker.turn.journal import TurnJournal
from worker.turn.live_updates import LiveUpdates

SESSION = "web:owner/a"


class Unheard(Turns):
    """Takes messages, and its answer never arrives: the connection was cut, and the next try waits."""

    took = asyncio.Event()

    async def join_waiting(
        self, claim: Claim, step: int, *, at_start: bool, retry_for_s: float = 0.0
    ) -> JoinedMessages | None:
        if await super().join_waiting(claim, step, at_start=at_start) is not None:
            self.took.set()
            await asyncio.Event().wait()
        return None


class Worker:
    """One worker; `inbox` lets what comes while a turn runs join it. `then` is called at each word of the model."""

    def __init__(self, client: RedisClient, model: ScriptedModel, turns: Turns, *tools: MessageTool) -> None:
        self.client, self.model, self.tools = client, model, Toolbox(tools)
        self.inbox = Inbox(client, InboxLimits(busy="steer"))
        runner = RunTurn(client, turns, self.answer, settings=AgentSettings())
        self.loop = LeaseLoop(LeaseQueue(client, "turns", owner=nonce(), lease_s=30), slots=1, run=runner)

    async def answer(self, conversation: Conversation, journal: TurnJournal, show: LiveUpdates) -> AgentResult:
        spec = AgentRunSpec(
            session=conversation.session,
            entry=conversation.entry,
            history=conversation.history,
            resume=conversation.resume,
            joined={number: one.followup for number, one in conversation.joined.items()},
            progress=show,
            followups=journal,
        )
        return await run_agent(spec, self.model, self.tools, journal)

    async def done(self) -> bool:
        await self.loop.claim_once()
        await self.loop.renew_once()
        return self.loop.running == 0 and not await self.client.command("ZCARD", keys.queue("turns"))

    async def lines(self) -> list[OutboundMessage]:
        found = [one.line for one in await Outbox(self.client).read_after(SESSION, after=0)]
        return [one for one in found if isinstance(one, OutboundMessage)]


async def outgoing_texts(client: RedisClient) -> Sequence[str]:
    rows = await client.command("LRANGE", keys.history(SESSION), 0, -1)
    return [one.content for row in rows if isinstance(one := decode_transcript(row), UserEntry)]


async def test_a_stop_while_messages_join_answers_them_too(client: RedisClient) -> None:
    """They were taken, but the worker has not heard so when the stop comes: they are ended by name, and kept."""
    turns = Unheard(client)
    turns.took = asyncio.Event()
    worker = Worker(client, ScriptedModel(["hello"]), turns)
    await say(worker.inbox, "one", id="x1")
    await say(worker.inbox, "two", id="x2")
    await worker.loop.claim_once()
    await eventually(turns.took.is_set, within_s=60)
    await worker.inbox.stop(SESSION)
    await eventually(worker.done, within_s=60)
    [line] = await worker.lines()
    assert (line.kind, line.in_reply_to) == ("stopped", ("x1", "x2"))
    assert await outgoing_texts(client) == ["one", "two"]


def speak(text: str) -> Any:
    return calls(call("message", {"text": text}), text="")


@pytest.mark.parametrize(
    ("replies", "sent", "end"),
    [
        (["It is 42.", speak("One moment."), "Told."], ["One moment."], "It is 42."),
        ([speak("It is 42."), "Told."], ["It is 42."], ""),
        ([speak("It is 42."), "Told.", "It is five."], ["It is 42."], "Told.\n\nIt is five."),
        ([speak("It is 42."), "Told.", speak("It is five."), "Told."], ["It is 42.", "It is five."], ""),
    ],
    ids=["an answer before it", "in the same part", "a part before", "in each part"],
)
async def test_the_message_tool_stands_for_the_messages_it_answered_only(
    client: RedisClient, tmp_path: Path, replies: Sequence[Any], sent: list[str], end: str
) -> None:
    """What was answered without it, before or behind messages that joined, is sent: nobody's answer is lost."""
    script = list(replies)

    def next_reply(_: list[dict[str, Any]]) -> Any:
        return script.pop(0)

    joins_behind = next(reply for reply in replies if isinstance(reply, str)) if len(replies) > 2 else None

    class Joining(ScriptedModel):
        async def chat(self, request: ModelRequest, on_delta: OnDelta | None = None) -> LLMResponse:
            reply = await super().chat(request, on_delta)
            if reply.content == joins_behind and len(await outgoing_lines(client)) == 1:
                await say(worker.inbox, "and the time?", id="x2")
            return reply

    message = MessageTool(ChatPolicy(), MediaStore(MediaSettings(dir=tmp_path)), files=4)
    worker = Worker(client, Joining(next_reply), Turns(client), message)
    await client.command("HSET", keys.session(SESSION), "busy", "steer")
    await say(worker.inbox, "what is it?", id="x1")
    await eventually(worker.done, within_s=60)
    *notices, last = await worker.lines()
    assert [line.content for line in notices] == sent
    assert (last.kind, last.content) == ("reply", end)
    assert last.in_reply_to == (("x1", "x2") if joins_behind else ("x1",))


async def outgoing_lines(client: RedisClient) -> list[Any]:
    found: list[Any] = await client.command("XRANGE", keys.inbox(SESSION), "-", "+")
    return found
