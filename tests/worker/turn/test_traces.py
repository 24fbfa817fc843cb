"""The spans of turns, subagents, tools, schedules and jobs, and the traces that go on without any."""

from __future__ import annotations

import io
import json
import logging
import random
from collections.abc import Awaitable, Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import structlog
from arq import Retry
from msgspec.structs import replace

from shared.clock import Clock
from shared.errors import ModelError, RedisAway, TurnLimited, TurnReleased
from shared.ids import log_id, nonce
from shared.log import configure
from shared.messages.effects import SpawnEffect
from shared.messages.outbound import OutboundMessage
from shared.messages.schedule import EveryPlan, Schedule
from shared.messages.subagent import SubagentTask
from shared.messages.transcript import ApprovalEntry, AssistantEntry, EffectEntry
from shared.settings import AgentSettings, CronSettings, LogSettings
from shared.store import keys
from shared.store.client.redis_client import RedisClient
from shared.store.delivery.outbox import Outbox
from shared.store.schedules.schedules import Schedules
from shared.store.subagents.subagents import Subagents
from shared.store.turns.approvals import question_line
from shared.store.turns.inbox import Inbox, InboxLimits
from shared.store.turns.queue import Claim, LeaseQueue
from shared.store.turns.turn_writes import Turns
from shared.tracing import continued, current_traceparent, fresh, span
from shared.tracing.spans import EXECUTE_TOOL
from shared.tracing.tracer import TraceContext, parse
from tests.helpers.build import message
from tests.helpers.children import Parent, reports
from tests.helpers.recorded import Kept, recording
from tests.helpers.schedules import answer_all, inbox, schedule
from tests.helpers.scripted_model import call, calls
from tests.helpers.turn_borders import RecordingTool
from tests.helpers.wait import eventually
from tests.worker.agent.turns import Turn
from worker.agent.model.model import TokenUsage
from worker.agent.turn import AgentResult
from worker.attempt.run_subagent import RunSubagent
from worker.attempt.run_turn import RunTurn
from worker.jobs.table import FUNCTIONS
from worker.jobs.ticks import Ticker
from worker.lease.lease_loop import LeaseLoop
from worker.tools.spawn import SpawnTool
from worker.turn.conversation import Conversation
from worker.turn.journal import LeaseJournal, TurnJournal
from worker.turn.live_updates import LiveUpdates

SESSION = "web:owner/a"
CAME = fresh(sampled=True)
NOW = 1_795_262_400_000
MINUTE = 60_000

Agent = Callable[[Conversation, TurnJournal, LiveUpdates], Awaitable[AgentResult]]


class NoWaits(random.Random):
    """Back-off without the wait."""

    def uniform(self, a: float, b: float) -> float:
        return 0.0


async def echo(conversation: Conversation, _journal: TurnJournal, _show: LiveUpdates) -> AgentResult:
    entries = (conversation.entry, AssistantEntry(content="canary", turn=conversation.entry.turn))
    return AgentResult(content="canary", entries=entries, rounds=1, usage=TokenUsage())


def raising(fault: BaseException) -> Agent:
    async def agent(*_: object) -> AgentResult:
        raise fault

    return agent


def turns_of(client: RedisClient, agent: Agent = echo, *, owner: str = "", lease_s: float = 30) -> LeaseLoop:
    runner = RunTurn(client, Turns(client), agent, settings=AgentSettings(), rng=NoWaits())
    return LeaseLoop(LeaseQueue(client, "turns", owner=owner or nonce(), lease_s=lease_s), slots=10, run=runner)


async def answered(client: RedisClient, loop: LeaseLoop) -> None:
    async def over() -> bool:
        await loop.claim_once()
        return loop.running == 0 and not await client.command("ZCARD", keys.queue(loop.queue.name))

    await eventually(over, within_s=60)


async def say(
    client: RedisClient, *traces: TraceContext | None, chat: str = "owner/a", limits: InboxLimits | None = None
) -> None:
    """A message for each of these traces."""
    for trace in traces:
        sent = replace(message("canary", chat=chat), traceparent=trace and trace.traceparent)
        await Inbox(client, limits).ingest(sent)


async def newest(client: RedisClient) -> OutboundMessage:
    line = (await Outbox(client).read_after(SESSION, after=0))[-1].line
    assert isinstance(line, OutboundMessage)
    return line


def all_attributes(kept: Kept) -> str:
    """All that was recorded, as text."""
    return repr([(one.name, one.attributes, one.events, one.error) for one in kept.spans])


# --- where no traces are sent


async def test_a_reply_carries_the_trace_of_its_message(client: RedisClient) -> None:
    """To whoever delivers it."""
    await say(client, CAME)
    await answered(client, turns_of(client))
    assert (await newest(client)).traceparent == CAME.traceparent


async def test_a_message_of_no_trace_is_answered_all_the_same(client: RedisClient) -> None:
    """One that an older gateway took."""
    await say(client, None)
    await answered(client, turns_of(client))
    assert (await newest(client)).traceparent is None


async def test_what_is_begun_in_a_turn_carries_its_trace(client: RedisClient) -> None:
    """A subagent's task and a question to a person."""
    done: list[SpawnEffect] = []

    class Effects:
        async def carry_out(self, effect: SpawnEffect) -> bool:
            done.append(effect)
            return True

    waits: Any = SimpleNamespace()
    tool = SpawnTool(waits)
    arguments = tool.parameters(task="dig")
    context: Any = SimpleNamespace(session=SESSION, turn=1, call_id="c", clock=Clock(), effects=Effects())
    with continued(CAME.traceparent):
        await tool.run(arguments, context)
        question = ApprovalEntry(id="q", call_id="c", turn=1, tool="exec", digest="d", arguments="{}")
        assert question_line(question, wait_s=60).traceparent == CAME.traceparent
    assert done[0].task.traceparent == CAME.traceparent


@pytest.fixture
def log_lines() -> Iterator[Callable[[], list[dict[str, Any]]]]:
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    out = io.StringIO()
    configure(LogSettings(), process="worker", stream=out)
    yield lambda: [json.loads(line) for line in out.getvalue().splitlines()]
    root.handlers[:], root.level = before, level
    structlog.reset_defaults()


async def test_every_line_of_a_turn_says_of_which_trace_it_is(
    client: RedisClient, log_lines: Callable[[], list[dict[str, Any]]]
) -> None:
    """Also one about what broke, and of a subagent; so a trace and the log beside it are found by one id."""
    await say(client, CAME)
    await answered(client, turns_of(client, raising(RuntimeError("x"))))
    parent = await Parent.begin(client, chat="owner/b")
    await spawned(parent, "aaaaaaaa")
    await parent.commit()
    await answered(client, subagents_of(client))
    lines = log_lines()
    assert {line["event"] for line in lines} >= {"turn failed", "turn ended", "dead letter", "subagent left"}
    assert {line.get("trace_id") for line in lines} == {CAME.trace_id}


# --- turns


async def test_a_turn_is_a_span_below_the_message_and_above_the_line(client: RedisClient) -> None:
    """Which attempt, where, how long it waited, how it ended; no text, no chat id."""
    await say(client, CAME)
    owner = nonce()
    with recording() as kept:
        await answered(client, turns_of(client, owner=owner))
    turn = kept.one("turn")
    assert (turn.parent, turn.remote, turn.type.kind, turn.error) == (CAME, True, "consumer", "")
    waited = turn.attributes.pop("shoal.wait_ms")
    assert isinstance(waited, int)
    assert waited >= 0
    assert turn.attributes == {
        "shoal.channel": "web",
        "shoal.session": log_id(SESSION),
        "shoal.turn": 1,
        "shoal.attempt": 1,
        "shoal.queue": "turns",
        "shoal.worker": owner[:12],
        "shoal.outcome": "done",
    }
    assert parse((await newest(client)).traceparent) == turn.context
    assert "canary" not in all_attributes(kept)
    assert "owner/a" not in all_attributes(kept)


@pytest.mark.parametrize(
    ("fault", "outcome", "error"),
    [
        (TurnLimited("ledger", "canary"), "dead", "dead"),
        (ModelError("auth", "canary", retryable=False), "dead", "dead"),
        (RuntimeError("canary"), "error", "error"),
    ],
)
async def test_a_turn_that_nobody_wanted_to_end_so_is_an_error(
    client: RedisClient, fault: Exception, outcome: str, error: str
) -> None:
    """By the word for its end, which the metrics have too."""
    await say(client, CAME)
    with recording() as kept:
        await answered(client, turns_of(client, raising(fault)))
    first = kept.named("turn")[0]
    assert (first.attributes["shoal.outcome"], first.error) == (outcome, error)
    assert {one.context.trace_id for one in kept.spans} == {CAME.trace_id}, "each attempt is in the trace"
    assert "canary" not in all_attributes(kept)


async def test_a_turn_that_others_go_on_with_is_none(client: RedisClient) -> None:
    """A drain, say."""
    await say(client, CAME)
    tries = iter([raising(TurnReleased("drain")), echo])

    async def agent(conversation: Conversation, journal: TurnJournal, show: LiveUpdates) -> AgentResult:
        return await next(tries)(conversation, journal, show)

    with recording() as kept:
        await answered(client, turns_of(client, agent))
    first, second = kept.named("turn")
    assert (first.attributes["shoal.outcome"], first.error) == ("released", "")
    assert (second.attributes["shoal.attempt"], second.parent) == (2, CAME)


async def test_a_turn_that_could_not_be_written_says_why(client: RedisClient) -> None:
    """What goes up ends the span, too."""
    await say(client, CAME)
    with recording() as kept:
        loop = turns_of(client, raising(RedisAway("canary")))
        await loop.claim_once()
        await eventually(lambda: kept.spans, within_s=60)
    assert kept.one("turn").error == "RedisAway"


@pytest.mark.parametrize("crashed", [False, True])
async def test_a_turn_that_changed_workers_says_how(client: RedisClient, crashed: bool) -> None:
    """From a worker that a guardian saw die, or whose lease ran out."""
    await say(client, CAME)
    first = LeaseQueue(client, "turns", owner=nonce(), lease_s=0.5)
    [claim] = await first.acquire(1)
    if crashed:
        await first.release(claim, count="crashes")
    with recording() as kept:
        await answered(client, turns_of(client, lease_s=1))
    assert kept.one("turn").attributes["shoal.takeover"] == ("crash" if crashed else "lapsed")


async def test_messages_that_joined_a_turn_are_linked_to_it(client: RedisClient) -> None:
    """Each came in a trace of its own; the turn is in that of the first."""
    others = [fresh(sampled=True), fresh(sampled=True)]
    await client.command("HSET", keys.session(SESSION), "busy", "steer")
    await say(client, CAME, *others)

    async def taking(conversation: Conversation, journal: TurnJournal, show: LiveUpdates) -> AgentResult:
        await journal.claim()
        return await echo(conversation, journal, show)

    with recording() as kept:
        await answered(client, turns_of(client, taking))
    turn = kept.one("turn")
    assert turn.parent == CAME
    assert turn.links == others


async def test_bytes_that_are_no_message_are_a_turn_of_no_trace(client: RedisClient) -> None:
    """It ends in a dead letter as ever."""
    await client.command("HSET", keys.session(SESSION), "n", 1)
    await client.command("XADD", keys.inbox(SESSION), "1-0", "v", "1", "m", b"\xc1broken")
    await client.command("ZADD", keys.queue("turns"), 1, keys.turn(SESSION))
    with recording() as kept:
        await answered(client, turns_of(client))
    turn = kept.one("turn")
    assert (turn.parent, turn.error) == (None, "dead")


# --- subagents


async def spawned(parent: Parent, id: str) -> None:
    """A subagent of a turn, with a trace."""
    parent.steps += 1
    assert parent.claim.turn is not None
    asked = SubagentTask(
        id=id,
        session=parent.claim.session,
        turn=parent.claim.turn.n,
        call_id=f"c-{id}",
        task="canary",
        label="canary",
        traceparent=CAME.traceparent,
    )
    entry = EffectEntry(call_id=asked.call_id, turn=asked.turn, kind="spawn", to=id)
    await Turns(parent.client).append_step(parent.claim, parent.steps, entry, SpawnEffect(task=asked, per_turn=9))


def subagents_of(client: RedisClient) -> LeaseLoop:
    async def agent(_claim: Claim, _task: SubagentTask, _journal: LeaseJournal) -> AgentResult:
        return AgentResult(content="canary", entries=(), rounds=1, usage=TokenUsage())

    runner = RunSubagent(Subagents(client), agent, settings=AgentSettings(), rng=NoWaits())
    return LeaseLoop(LeaseQueue(client, "jobs", owner=nonce(), lease_s=30), slots=10, run=runner)


@pytest.mark.parametrize("on", [False, True])
async def test_a_subagent_is_below_the_call_that_spawned_it_and_above_its_report(client: RedisClient, on: bool) -> None:
    """So the turn that tells the person of it is in the same trace; where no traces are sent, the ids go on."""
    parent = await Parent.begin(client)
    await spawned(parent, "aaaaaaaa")
    await parent.commit()
    if not on:
        await answered(client, subagents_of(client))
        [report] = await reports(client)
        assert report.traceparent == CAME.traceparent
        return
    with recording() as kept:
        await answered(client, subagents_of(client))
    subagent = kept.one("subagent")
    [report] = await reports(client)
    assert (subagent.parent, subagent.type.kind) == (CAME, "consumer")
    assert parse(report.traceparent) == subagent.context
    del subagent.attributes["shoal.wait_ms"], subagent.attributes["shoal.worker"]
    assert subagent.attributes == {
        "shoal.channel": "web",
        "shoal.session": log_id(SESSION),
        "shoal.child": "aaaaaaaa",
        "shoal.attempt": 1,
        "shoal.outcome": "ok",
    }
    assert "canary" not in all_attributes(kept)


# --- tools


async def test_tools_are_sibling_spans_without_their_arguments() -> None:
    """Name, call, outcome; of one that does not exist not even the name, for a model has made it up."""

    async def failing(*_: object) -> str:
        raise RuntimeError("canary")

    one, two = RecordingTool("one"), RecordingTool("two", behaviour=failing)
    turn = Turn(
        [
            calls(call("one", {"text": "canary"}, "c1"), call("two", {}, "c2"), call("canary_tool", {}, "c3")),
            "the canary is dead",
        ],
        one,
        two,
    )
    with recording() as kept, continued(CAME.traceparent):
        await turn.run()
    assert {span.parent for span in kept.spans} == {CAME}
    assert {span.name: span.error for span in kept.spans} == {
        "execute_tool one": "",
        "execute_tool two": "error",
        "execute_tool unknown": "unknown_tool",
    }
    assert kept.one("execute_tool two").attributes == {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "two",
        "gen_ai.tool.type": "function",
        "gen_ai.tool.call.id": "c2",
        "shoal.outcome": "error",
        "error.type": "error",
    }
    assert "canary" not in all_attributes(kept)


async def test_arguments_and_results_of_tools_are_in_spans_only_where_the_settings_ask_for_them() -> None:
    """Cut, for spans wait in memory."""

    async def look(*_: object) -> str:
        return "result " * 2000

    with recording(content=True) as kept:
        await Turn([calls(call("look", {"at": "sky"}, "c1")), "done"], RecordingTool("look", behaviour=look)).run()
    attributes = kept.one("execute_tool look").attributes
    assert json.loads(str(attributes["gen_ai.tool.call.arguments"])) == {"at": "sky"}
    result = str(attributes["gen_ai.tool.call.result"])
    assert (result[:14], len(result)) == ("result result ", 4096)


async def test_what_a_tool_begins_is_below_its_span() -> None:
    """A subagent, for one."""
    seen: list[str | None] = []

    async def look(*_: object) -> str:
        seen.append(current_traceparent())
        return "ok"

    with recording() as kept:
        await Turn([calls(call("look", {}, "c1")), "done"], RecordingTool("look", behaviour=look)).run()
    assert seen == [kept.one("execute_tool look").context.traceparent]


# --- schedules


async def planned(client: RedisClient, *, traceparent: str | None) -> Schedule:
    plan = replace(schedule(plan=EveryPlan(MINUTE, NOW), text="canary"), traceparent=traceparent)
    await Schedules(client).add(plan, NOW + MINUTE)
    return plan


async def test_a_tick_begins_a_trace_that_is_linked_to_the_turn_that_planned_it(client: RedisClient) -> None:
    """Once: of the workers that look at it, one."""
    await planned(client, traceparent=CAME.traceparent)
    with recording() as kept:
        for _ in "abc":
            await Ticker(Schedules(client), CronSettings(spread_s=0)).run_once(now_ms=NOW + MINUTE)
    tick = kept.one("tick")
    assert (tick.parent, tick.links, tick.type.kind) == (None, [CAME], "producer")
    assert tick.attributes == {"shoal.channel": "web", "shoal.session": log_id(SESSION), "shoal.schedule": "aa"}
    [fired] = await inbox(client)
    assert parse(fired.traceparent) == tick.context
    assert fired.traceparent != CAME.traceparent
    assert "canary" not in all_attributes(kept)


async def test_a_tick_has_a_trace_where_none_are_sent(client: RedisClient) -> None:
    """Its own, each time."""
    await planned(client, traceparent=None)
    ticker = Ticker(Schedules(client), CronSettings(spread_s=0))
    traces: set[TraceContext | None] = set()
    for minute in (1, 2):
        await ticker.run_once(now_ms=NOW + minute * MINUTE)
        [fired] = await answer_all(client)
        traces.add(parse(fired.traceparent))
    assert [trace is not None and not trace.sampled for trace in traces] == [True, True]


async def test_a_tick_that_somebody_else_ran_leaves_no_span(client: RedisClient) -> None:
    """Two looked at it, and one was first."""
    await planned(client, traceparent=None)

    class Second(Schedules):
        async def fire(self, *given: Any, **more: Any) -> Any:
            await super().fire(*given, **more)
            return await super().fire(*given, **more)

    with recording() as kept:
        await Ticker(Second(client), CronSettings(spread_s=0)).run_once(now_ms=NOW + MINUTE)
    assert kept.spans == []


# --- jobs of memory


async def test_a_job_is_a_span_of_its_own_and_one_that_is_put_off_is_no_error() -> None:
    """What it asks of a model is below it."""

    async def away(*_: object, **__: object) -> None:
        with span(EXECUTE_TOOL, "probe"):
            raise ModelError("overloaded", "canary", retryable=True)

    deps = SimpleNamespace(consolidator=SimpleNamespace(consolidate=away, settings=SimpleNamespace(keep=1)))
    consolidate = next(function for function in FUNCTIONS if function.name == "consolidate")
    with recording() as kept, pytest.raises(Retry):
        await consolidate.coroutine({"deps": deps, "job_try": 2}, SESSION)
    job = kept.one("job consolidate")
    assert job.attributes == {"shoal.attempt": 2, "shoal.ended_by": "TryLater"}
    assert kept.one("execute_tool probe").parent == job.context
    assert "canary" not in all_attributes(kept)
