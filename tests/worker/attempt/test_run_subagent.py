"""The job of a subagent: every way it can end, on a real Valkey, with an agent of the test's own."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable

import pytest

from shared.errors import ModelError, TurnLimited, TurnReleased
from shared.ids import nonce
from shared.messages.subagent import SubagentTask
from shared.messages.transcript import AssistantEntry
from shared.metrics import REGISTRY
from shared.settings import AgentSettings
from shared.store import keys
from shared.store.client.redis_client import RedisClient
from shared.store.sessions.erase import forget
from shared.store.subagents.subagents import SubagentInfo, Subagents
from shared.store.turns.queue import Claim, LeaseQueue
from tests.helpers.children import SESSION, Parent, reports
from tests.helpers.wait import eventually
from worker.agent.model.model import TokenUsage
from worker.agent.turn import AgentResult, TurnOutcome
from worker.attempt.attempt import CRASH_LIMIT
from worker.attempt.run_subagent import RunSubagent
from worker.lease.lease_loop import LeaseLoop
from worker.turn.journal import LeaseJournal

ID = "aaaaaaaa"
Agent = Callable[[Claim, SubagentTask, LeaseJournal], Awaitable[AgentResult]]


class NoWaits(random.Random):
    """Back-off without the wait."""

    def uniform(self, a: float, b: float) -> float:
        return 0.0


def result(text: str, outcome: TurnOutcome = "done") -> AgentResult:
    return AgentResult(content=text, entries=(), rounds=1, usage=TokenUsage(), outcome=outcome)


def raising(fault: BaseException) -> Agent:
    async def agent(_claim: Claim, _task: SubagentTask, _journal: LeaseJournal) -> AgentResult:
        raise fault

    return agent


def make_loop(client: RedisClient, agent: Agent, *, timeout_s: float = 60, give_up_s: float = 900) -> LeaseLoop:
    settings = AgentSettings(subagent_timeout_s=timeout_s, give_up_s=give_up_s)
    runner = RunSubagent(Subagents(client), agent, settings=settings, rng=NoWaits())
    return LeaseLoop(LeaseQueue(client, "jobs", owner=nonce(), lease_s=30), slots=10, run=runner)


async def spawned(client: RedisClient) -> None:
    """One subagent of a turn that is over."""
    parent = await Parent.begin(client)
    await parent.spawn(ID)
    await parent.commit()


async def ended(client: RedisClient, loop: LeaseLoop) -> SubagentInfo:
    async def over() -> bool:
        await loop.claim_once()
        return loop.running == 0 and not await client.command("ZCARD", keys.SUBAGENTS)

    await eventually(over, within_s=60)
    child = await Subagents(client).read_info(ID)
    assert child is not None
    return child


def count(name: str, **labels: str) -> float:
    return REGISTRY.get_sample_value(f"shoal_{name}_total", labels) or 0.0


async def test_a_subagent_ends_in_one_report(client: RedisClient) -> None:
    """The agent gets the task; the chat gets the result."""
    seen: list[str] = []

    async def agent(_claim: Claim, task: SubagentTask, _journal: LeaseJournal) -> AgentResult:
        seen.append(task.task)
        return result("gold")

    await spawned(client)
    before = count("subagents", outcome="ok")
    child = await ended(client, make_loop(client, agent))
    assert (child.state, child.result, seen) == ("ok", "gold", ["look it up"])
    [report] = await reports(client)
    assert "Result:\ngold\n" in report.content
    assert count("subagents", outcome="ok") == before + 1


@pytest.mark.parametrize(
    ("agent", "state", "text"),
    [
        (raising(RuntimeError("secret detail")), "failed", "went wrong"),
        (raising(TurnLimited("ledger", "too many results")), "failed", "too many results"),
        (raising(ModelError("auth", "bad key", retryable=False)), "failed", "model refused"),
    ],
    ids=["a bug", "a limit", "a refusing model"],
)
async def test_whatever_fails_is_reported_and_no_detail_gets_out(
    client: RedisClient, agent: Agent, state: str, text: str
) -> None:
    """Honest and short; a bug is tried three times before."""
    await spawned(client)
    child = await ended(client, make_loop(client, agent))
    assert child.state == state
    [report] = await reports(client)
    assert report.content.startswith("[Subagent 'search' failed]")
    assert text in report.content
    assert "secret" not in report.content


async def test_what_has_no_text_says_so_and_what_is_not_finished_failed(client: RedisClient) -> None:
    """An empty answer is no failure; one that hit the limit of rounds is."""

    async def empty(_claim: Claim, _task: SubagentTask, _journal: LeaseJournal) -> AgentResult:
        return result("I have no answer", "empty")

    await spawned(client)
    assert (await ended(client, make_loop(client, empty))).state == "ok"
    [report] = await reports(client)
    assert "Task completed but no final response was generated." in report.content


async def test_one_that_takes_too_long_reports_what_it_had(client: RedisClient) -> None:
    """The time counts from the first worker that took it, over all attempts."""

    async def slow(_claim: Claim, task: SubagentTask, journal: LeaseJournal) -> AgentResult:
        await journal.append(AssistantEntry(content="half of it", turn=task.turn))
        await asyncio.Event().wait()
        raise AssertionError

    await spawned(client)
    child = await ended(client, make_loop(client, slow, timeout_s=0.3))
    assert child.state == "timeout"
    [report] = await reports(client)
    assert "half of it" in report.content


async def test_a_model_that_is_away_costs_no_slot_and_is_given_up_in_the_end(client: RedisClient) -> None:
    """As for turns."""
    await spawned(client)
    away = raising(ModelError("overloaded", "later", retryable=True))
    loop = make_loop(client, away)
    await loop.claim_once()
    await eventually(lambda: loop.running == 0)
    child = await Subagents(client).read_info(ID)
    assert child is not None
    assert child.open
    await client.command("HSET", keys.child(ID), "away", 1)
    await client.command("ZADD", keys.queue("jobs"), 1, keys.sub(ID))
    assert (await ended(client, loop)).state == "failed"


async def test_a_drain_hands_it_over_with_its_ledger(client: RedisClient) -> None:
    """The next worker goes on where it stood; nothing is counted."""
    resumed: list[int] = []

    async def agent(_claim: Claim, _task: SubagentTask, journal: LeaseJournal) -> AgentResult:
        resumed.append(len(journal.entries))
        if len(resumed) == 1:
            await journal.append(AssistantEntry(content="began", turn=1))
            raise TurnReleased("drain")
        return result("done")

    await spawned(client)
    assert (await ended(client, make_loop(client, agent))).state == "ok"
    assert resumed == [0, 1]


async def test_one_that_kills_workers_is_dead_lettered_and_reported_to_its_chat(client: RedisClient) -> None:
    """Eight crashes of any kind end it; no model is asked again."""
    await spawned(client)
    await client.command("HSET", keys.child(ID), "crashes", CRASH_LIMIT)
    child = await ended(client, make_loop(client, raising(AssertionError("it must not run"))))
    assert child.state == "poison"
    assert len(await reports(client)) == 1


async def test_a_result_that_comes_after_the_conversation_ended_is_dropped_and_counted(client: RedisClient) -> None:
    """`/new` and `/forget` took the subagent away: nothing is written, a record stays in log and metric."""
    running, may_end = asyncio.Event(), asyncio.Event()

    async def agent(_claim: Claim, _task: SubagentTask, _journal: LeaseJournal) -> AgentResult:
        running.set()
        await may_end.wait()
        return result("too late")

    await spawned(client)
    before = count("subagent_results_dropped")
    loop = make_loop(client, agent)
    await loop.claim_once()
    await running.wait()
    await forget(client, SESSION)
    may_end.set()
    await eventually(lambda: loop.running == 0)
    assert await reports(client) == []
    assert count("subagent_results_dropped") == before + 1
    assert await client.command("EXISTS", keys.child(ID), keys.ledger(ID)) == 0


async def test_a_cancelled_one_writes_nothing_more(client: RedisClient) -> None:
    """It was ended by who cancelled it; its worker only stops."""
    running = asyncio.Event()

    async def agent(_claim: Claim, _task: SubagentTask, _journal: LeaseJournal) -> AgentResult:
        running.set()
        await asyncio.Event().wait()
        raise AssertionError

    await spawned(client)
    before = count("subagents", outcome="cancelled")
    loop = make_loop(client, agent)
    await loop.claim_once()
    await running.wait()
    assert await Subagents(client).cancel(SESSION) == 1
    await loop.renew_once()
    await eventually(lambda: loop.running == 0)
    assert await reports(client) == []
    assert count("subagents", outcome="cancelled") == before + 1
