"""What becomes of messages that come while a turn runs: one suite for every policy, with workers that know no policy.

A message carries what was settled for it when it came in, so whichever worker takes the turn does the same.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any, Final

import msgspec
import pytest

from gateway.commands.registry import build_commands
from gateway.ingress.ingest import Ingress
from proof.chaos.verdict import torn
from shared.ids import nonce
from shared.messages.inbound import InboundMessage
from shared.messages.outbound import OutboundMessage, UserLine
from shared.messages.schedule import BACKGROUND
from shared.messages.transcript import AssistantEntry, TranscriptEntry, UserEntry, decode_transcript
from shared.settings import AgentSettings, Settings
from shared.settings.sections.chats import POLICIES, Busy
from shared.store import keys
from shared.store.client.redis_client import RedisClient
from shared.store.delivery.outbox import Outbox
from shared.store.turns.inbox import Accepted, Inbox, InboxLimits
from shared.store.turns.queue import LeaseQueue
from shared.store.turns.turn_writes import Turns
from tests.helpers.build import message, say
from tests.helpers.scripted_model import ScriptedModel, call, calls
from tests.helpers.turn_borders import RecordingTool
from tests.helpers.wait import eventually
from worker.agent.loop import run_agent
from worker.agent.model.model import LLMResponse, ModelRequest, OnDelta
from worker.agent.tools.toolbox import Toolbox
from worker.agent.turn import AgentResult, AgentRunSpec
from worker.attempt.run_turn import INTERRUPTED, RunTurn
from worker.lease.lease_loop import LeaseLoop
from worker.turn.conversation import Conversation
from worker.turn.journal import TurnJournal
from worker.turn.live_updates import LiveUpdates

SESSION: Final = "web:owner/a"
BURST: Final = 20
Agent = Callable[[Conversation, TurnJournal, LiveUpdates], Awaitable[AgentResult]]


class Model(ScriptedModel):
    """Answers with the texts that it has not answered yet. `gate` holds a call back once it has said a word."""

    def __init__(self, *, tools_first: bool = False) -> None:
        super().__init__(self._texts_of)
        self.gate = asyncio.Event()
        self.begun = asyncio.Event()
        self._tools_first = tools_first

    def _texts_of(self, messages: list[dict[str, Any]]) -> Any:
        asked = [text_of(one) for one in messages if one["role"] == "user"]
        if self._tools_first and messages[-1]["role"] == "user" and len(asked) == 1:
            return calls(call("look"))
        last = next((at for at in range(len(messages) - 1, -1, -1) if messages[at]["role"] == "assistant"), -1)
        new = [text_of(one) for one in messages[last + 1 :] if one["role"] == "user"] or asked
        return "answer to " + ", ".join(new)

    async def chat(self, request: ModelRequest, on_delta: OnDelta | None = None) -> LLMResponse:
        if on_delta is not None and not self.gate.is_set():
            await on_delta("thinking")
        self.begun.set()
        await self.gate.wait()
        return await super().chat(request, on_delta)


def text_of(message: dict[str, Any]) -> str:
    return str(message["content"]).partition("\n\n[Runtime Context]")[0]


def agent_with(model: Model, *tools: RecordingTool) -> Agent:
    async def agent(conversation: Conversation, journal: TurnJournal, show: LiveUpdates) -> AgentResult:
        spec = AgentRunSpec(
            session=conversation.session,
            entry=conversation.entry,
            images=conversation.opening.images,
            history=conversation.history,
            resume=conversation.resume,
            joined={number: one.followup for number, one in conversation.joined.items()},
            progress=show,
            followups=journal,
        )
        return await run_agent(spec, model, Toolbox(tools), journal)

    return agent


class Fleet:
    """Two workers and two gateways on one store. Workers have no settings of policies at all."""

    def __init__(self, url: str, model: Model, limits: InboxLimits, *tools: RecordingTool) -> None:
        self.model = model
        self.clients = [RedisClient(url) for _ in range(4)]
        settings = Settings()
        self.gateways = [Ingress(client, build_commands(settings, client), limits) for client in self.clients[2:]]
        self.client = self.clients[0]
        self.loops = [
            LeaseLoop(
                LeaseQueue(client, "turns", owner=nonce(), lease_s=30),
                slots=10,
                run=RunTurn(client, Turns(client), agent_with(model, *tools), settings=AgentSettings()),
            )
            for client in self.clients[:2]
        ]

    async def say(self, nth: int, *, chat: str = "owner/a", text: str = "") -> Accepted:
        sent = message(text or f"m{nth}", id=f"id{nth}", chat=chat)
        show = UserLine(id=sent.id, text=sent.content)
        return await self.gateways[nth % 2].ingest(sent, show=show, principal="owner")

    async def tick(self) -> bool:
        """Both workers take what is due; whether everything is done."""
        for loop in self.loops:
            await loop.claim_once()
            await loop.renew_once()
        running = sum(loop.running for loop in self.loops)
        return not running and not await self.client.command("ZCARD", keys.queue("turns"))

    async def done(self) -> None:
        self.model.gate.set()
        await eventually(self.tick, within_s=60, what="the fleet to be done")

    async def lines(self, *kinds: str) -> list[OutboundMessage]:
        found = [one.line for one in await Outbox(self.client).read_after(SESSION, after=0)]
        return [one for one in found if isinstance(one, OutboundMessage) and (not kinds or one.kind in kinds)]

    async def history(self) -> list[TranscriptEntry]:
        rows = await self.client.command("LRANGE", keys.history(SESSION), 0, -1)
        return [decode_transcript(row) for row in rows]


@pytest.fixture
async def fleet_of(redis_url: str) -> AsyncIterator[Callable[..., Fleet]]:
    made: list[Fleet] = []

    def make(busy: Busy, *tools: RecordingTool, tools_first: bool = False, merge_ms: int = 50) -> Fleet:
        limits = InboxLimits(busy=busy, merge_ms=merge_ms)
        made.append(Fleet(redis_url, Model(tools_first=tools_first), limits, *tools))
        return made[-1]

    yield make
    for fleet in made:
        for client in fleet.clients:
            await client.close()


async def burst(fleet: Fleet, *, hold: bool = True) -> list[Accepted]:
    """The first message, and when its turn has begun (unless it is not held) 19 more from two gateways at once."""
    first = await fleet.say(1)
    if hold:
        await eventually(lambda: started(fleet), what="the first turn")
    pairs = [(await fleet.say(nth), await fleet.say(nth + 1)) for nth in range(2, BURST, 2)]
    last = await fleet.say(BURST)
    return [first, *(one for pair in pairs for one in pair), last]


async def started(fleet: Fleet) -> bool:
    await fleet.tick()
    return fleet.model.begun.is_set()


async def every_message_is_accounted_for(fleet: Fleet, accepted: Sequence[Accepted]) -> None:
    """Answered, stopped or told that it is not read: once each; nothing waits; no history is torn; no debris."""
    ends = [id for line in await fleet.lines() for id in line.in_reply_to]
    assert sorted(ends) == sorted(f"id{nth}" for nth in range(1, BURST + 1))
    assert torn(await fleet.history()) == 0
    assert not await fleet.client.command("EXISTS", keys.inbox(SESSION), keys.ledger(SESSION), keys.DEAD)
    left = await fleet.client.command("HKEYS", keys.session(SESSION))
    assert not {b"taken", b"cut", b"stop", b"gap"} & set(left)
    again = await fleet.say(BURST)
    assert (again.duplicate, again.turn, again.ahead) == (True, accepted[-1].turn, 0)


async def test_queue_makes_a_turn_of_each(fleet_of: Callable[..., Fleet]) -> None:
    """20 messages from two gateways: 20 turns, in the order in which they came."""
    fleet = fleet_of("queue")
    accepted = await burst(fleet)
    await fleet.done()
    replies = await fleet.lines("reply")
    assert [line.turn for line in replies] == list(range(1, BURST + 1))
    assert [line.content for line in replies] == [f"answer to m{nth}" for nth in range(1, BURST + 1)]
    assert [one.ahead for one in accepted] == list(range(BURST))
    await every_message_is_accounted_for(fleet, accepted)


@pytest.mark.parametrize("tools_first", [False, True], ids=["behind an answer", "behind a tool"])
async def test_steer_lets_them_join_the_running_turn(fleet_of: Callable[..., Fleet], tools_first: bool) -> None:
    """One turn with 20 messages of the user, at the next border: behind its tools, or behind what would have been its
    end."""
    fleet = fleet_of("steer", RecordingTool("look"), tools_first=tools_first)
    accepted = await burst(fleet)
    await fleet.done()
    [line] = await fleet.lines("reply")
    names = [f"m{nth}" for nth in range(1, BURST + 1)]
    assert line.in_reply_to == tuple(f"id{nth}" for nth in range(1, BURST + 1))
    assert [text_of(one) for one in fleet.model.asked[-1] if one["role"] == "user"] == names
    assert len(fleet.model.asked) == 2
    behind = f"answer to {', '.join(names[1:])}"
    assert line.content == (behind if tools_first else f"answer to m1\n\n{behind}")
    history = await fleet.history()
    assert [entry.content for entry in history[:BURST]] == names
    assert {entry.turn for entry in history} == {1}
    assert history[-1] == AssistantEntry(content=line.content, turn=1, at=history[-1].at)
    await every_message_is_accounted_for(fleet, accepted)


async def test_merge_makes_one_turn_of_a_window(fleet_of: Callable[..., Fleet]) -> None:
    """What comes within the window is one turn; what comes while it runs makes the next."""
    fleet = fleet_of("merge", merge_ms=600_000)
    for nth in range(1, 11):
        await fleet.say(nth)
    assert not await fleet.tick(), "the window is open"
    assert not fleet.model.begun.is_set()
    await fleet.client.command("ZADD", keys.queue("turns"), 1, keys.turn(SESSION))
    await eventually(lambda: started(fleet), what="the first window")
    accepted = [await fleet.say(nth) for nth in range(11, BURST + 1)]
    fleet.model.gate.set()

    async def answered() -> bool:
        await fleet.tick()
        return len(await fleet.lines("reply")) == 1

    await eventually(answered, within_s=30)
    score = await fleet.client.command("ZSCORE", keys.queue("turns"), keys.turn(SESSION))
    seconds, _ = await fleet.client.command("TIME")
    assert float(score) > (int(seconds) + 300) * 1000, "the second burst has its whole window"
    await fleet.client.command("ZADD", keys.queue("turns"), 1, keys.turn(SESSION))
    await fleet.done()
    first, second = await fleet.lines("reply")
    assert first.in_reply_to == tuple(f"id{nth}" for nth in range(1, 11))
    assert second.in_reply_to == tuple(f"id{nth}" for nth in range(11, BURST + 1))
    assert (first.turn, second.turn) == (1, 11)
    await every_message_is_accounted_for(fleet, accepted)


async def test_interrupt_ends_what_runs_and_answers_the_last(fleet_of: Callable[..., Fleet]) -> None:
    """What the first had said is kept and marked, in the chat and in the conversation."""
    fleet = fleet_of("interrupt")
    accepted = await burst(fleet)

    async def interrupted() -> bool:
        await fleet.tick()
        return bool(await fleet.lines("stopped"))

    await eventually(interrupted, within_s=30, what="the end of the first turn")
    await fleet.done()
    lines = await fleet.lines()
    assert [line.kind for line in lines] == ["stopped"] * (BURST - 1) + ["reply"]
    assert lines[0].content == "thinking"
    assert (lines[-1].content, lines[-1].in_reply_to) == (f"answer to m{BURST}", (f"id{BURST}",))
    sent = [entry for entry in await fleet.history() if not isinstance(entry, UserEntry)]
    assert sent[0].content == f"thinking\n\n{INTERRUPTED}"
    await every_message_is_accounted_for(fleet, accepted)


async def test_reject_reads_only_the_first(fleet_of: Callable[..., Fleet]) -> None:
    """One answer and 19 notes, each told how many wait; a message that is sent again gets the same answer, and no
    second note."""
    fleet = fleet_of("reject")
    accepted = await burst(fleet)
    assert [one.rejected for one in accepted] == [False] + [True] * (BURST - 1)
    await fleet.done()
    [answer] = await fleet.lines("reply")
    notes = await fleet.lines("notice")
    assert answer.in_reply_to == ("id1",)
    assert [note.in_reply_to for note in notes] == [(f"id{nth}",) for nth in range(2, BURST + 1)]
    assert all("waiting before it: 1" in note.content for note in notes)
    await every_message_is_accounted_for(fleet, accepted)
    assert len(await fleet.lines("notice")) == BURST - 1


@pytest.mark.parametrize("metadata", [{BACKGROUND: "1"}, {"joins": "1"}], ids=["tick", "report"])
async def test_reject_ignores_messages_that_no_person_wrote(client: RedisClient, metadata: dict[str, str]) -> None:
    """Who comes while only ticks or reports of subagents are answered waits; who comes behind a person is refused."""
    inbox = Inbox(client, InboxLimits(busy="reject"))
    for _ in range(10):
        sent = msgspec.structs.replace(message(), metadata=metadata)
        await inbox.ingest(sent, internal=True)
    accepted = [await say(inbox) for _ in range(3)]
    assert [(one.rejected, one.ahead) for one in accepted] == [(False, 10), (True, 11), (True, 11)]


@pytest.mark.parametrize("busy", POLICIES)
async def test_each_policy_answers_a_message_alone_alike(fleet_of: Callable[..., Fleet], busy: Busy) -> None:
    """A policy is about what comes while a turn runs: a chat in which nothing runs does not notice it."""
    fleet = fleet_of(busy, merge_ms=0)
    await fleet.say(1)
    await fleet.done()
    [line] = await fleet.lines()
    assert (line.content, line.kind, line.in_reply_to) == ("answer to m1", "reply", ("id1",))


@pytest.mark.parametrize("busy", POLICIES)
async def test_a_chat_chooses_its_policy(fleet_of: Callable[..., Fleet], busy: Busy) -> None:
    """`/busy` beats the channel's setting at every gateway, and `/busy default` goes back."""
    fleet = fleet_of("queue", merge_ms=0)
    await fleet.say(90, text=f"/busy {busy}")
    await fleet.say(1)
    await eventually(lambda: started(fleet))
    second = await fleet.say(2)
    assert second.rejected is (busy == "reject")
    await fleet.done()
    expected = {"queue": 2, "steer": 1, "merge": 2, "interrupt": 2, "reject": 1}
    assert len(await fleet.lines("reply", "stopped")) == expected[busy]
    await fleet.say(91, text="/busy default")
    assert await fleet.client.command("HGET", keys.session(SESSION), "busy") is None


async def test_results_that_wait_together_make_one_turn(client: RedisClient, fleet_of: Callable[..., Fleet]) -> None:
    """Messages of metadata `joins` at the head are one turn, whatever the policy; a person's message ends their row."""
    fleet, inbox = fleet_of("queue"), Inbox(client, InboxLimits(busy="reject"))

    async def tell(nth: int, **more: str) -> None:
        sent = InboundMessage(
            channel="web", chat_id="owner/a", sender_id="owner", id=f"id{nth}", content=f"m{nth}", timestamp=1,
            metadata=more,
        )  # fmt: skip
        await inbox.ingest(sent, internal=True)

    for nth in (1, 2, 3):
        await tell(nth, joins="1")
    await tell(4)
    await tell(5, joins="1")
    await tell(6, joins="1")
    await fleet.done()
    assert [line.in_reply_to for line in await fleet.lines("reply")] == [
        ("id1", "id2", "id3"),
        ("id4",),
        ("id5", "id6"),
    ]
    assert fleet.model.offered  # it was asked
    assert torn(await fleet.history()) == 0


@pytest.mark.parametrize("busy", ["reject", "interrupt"])
async def test_shoals_own_messages_are_never_rejected_and_interrupt_nobody(
    client: RedisClient, fleet_of: Callable[..., Fleet], busy: Busy
) -> None:
    """`internal` messages wait for their turn."""
    fleet = fleet_of(busy)
    await fleet.say(1)
    await eventually(lambda: started(fleet))
    accepted = await Inbox(client, InboxLimits(busy=busy)).ingest(message(), internal=True)
    assert (accepted.rejected, accepted.ahead) == (False, 1)
    assert await client.command("HGET", keys.session(SESSION), "stop") is None
    await fleet.done()
