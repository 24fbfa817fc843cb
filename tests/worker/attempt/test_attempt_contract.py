"""Every way an attempt can end, for a turn and for a subagent: one suite that both have to pass."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest
from structlog.testing import capture_logs

from shared.clock import Clock
from shared.errors import ModelError, TurnLimited, TurnReleased
from shared.ids import nonce
from shared.messages.outbound import OutboundMessage
from shared.messages.transcript import AssistantEntry
from shared.metrics import REGISTRY
from shared.settings import AgentSettings
from shared.store import keys
from shared.store.client.redis_client import RedisClient
from shared.store.delivery.outbox import Outbox
from shared.store.subagents.subagents import Subagents
from shared.store.turns.inbox import Inbox
from shared.store.turns.queue import LeaseQueue
from shared.store.turns.turn_writes import Turns
from tests.helpers.build import say
from tests.helpers.children import SESSION, Parent, reports
from tests.helpers.clock import HandClock
from tests.helpers.wait import eventually
from tests.worker.attempt.test_run_turn import NoWaits
from worker.agent.model.model import TokenUsage
from worker.agent.turn import AgentResult
from worker.attempt.attempt import CRASH_LIMIT
from worker.attempt.quarantine import AFTER_CRASHES, Quarantine, Verdict
from worker.attempt.run_subagent import RunSubagent
from worker.attempt.run_turn import RunTurn
from worker.lease.lease import Lease
from worker.lease.lease_loop import LeaseLoop
from worker.turn.journal import LeaseJournal

CHILD = "aaaaaaaa"

Agent = Callable[[LeaseJournal], Awaitable[str]]


class FixedVerdict(Quarantine):
    """A quarantine that starts no process and returns the verdict it was given."""

    def __init__(self, verdict: Verdict | None) -> None:
        super().__init__("turns", nonce())
        self.verdict = verdict

    async def run(self, lease: Lease, crashes: int) -> Verdict | None:
        return self.verdict


class Bench:
    """One piece of due work and the runner of its kind. `state` is the hash that holds its counters."""

    queue: str
    state: str
    member: str
    event: str
    stopped: str

    def __init__(self, client: RedisClient) -> None:
        self.client = client
        self.clock = HandClock()

    async def begin(self) -> None:
        raise NotImplementedError

    def runner(self, agent: Agent, settings: AgentSettings, quarantine: Quarantine | None) -> Any:
        raise NotImplementedError

    async def replies(self) -> list[str]:
        """The texts that reached the chat when the work ended."""
        raise NotImplementedError

    async def stop(self) -> None:
        raise NotImplementedError

    def loop(self, agent: Agent, quarantine: Quarantine | None = None, **settings: Any) -> LeaseLoop:
        runner = self.runner(agent, AgentSettings(**settings), quarantine)
        queue = LeaseQueue(self.client, self.queue, owner=nonce(), lease_s=30)
        return LeaseLoop(queue, slots=10, run=runner, clock=self.clock)

    async def counters(self) -> list[bytes | None]:
        found: list[bytes | None] = await self.client.command("HMGET", self.state, "errors", "crashes")
        return found

    async def waits(self) -> bool:
        """Whether the work lies in its queue and nobody holds a lease on it."""
        queued = await self.client.command("ZSCORE", keys.queue(self.queue), self.member)
        return queued is not None and not await self.client.command("HLEN", keys.leases(self.queue))


class TurnBench(Bench):
    queue = "turns"
    state = keys.session(SESSION)
    member = keys.turn(SESSION)
    event = "turn ended"
    stopped = "stopped"

    async def begin(self) -> None:
        await say(Inbox(self.client))

    def runner(self, agent: Agent, settings: AgentSettings, quarantine: Quarantine | None) -> Any:
        async def call(conversation: Any, journal: LeaseJournal, _show: object) -> AgentResult:
            text = await agent(journal)
            entries = (conversation.entry, AssistantEntry(content=text, turn=conversation.entry.turn))
            return AgentResult(content=text, entries=entries, rounds=1, usage=TokenUsage())

        turns = Turns(self.client)
        return RunTurn(
            self.client, turns, call, settings=settings, quarantine=quarantine, clock=self.clock, rng=NoWaits()
        )

    async def replies(self) -> list[str]:
        found = await Outbox(self.client).read_after(SESSION, after=0)
        return [one.line.content for one in found if isinstance(one.line, OutboundMessage)]

    async def stop(self) -> None:
        await Inbox(self.client).stop(SESSION)


class SubagentBench(Bench):
    queue = "jobs"
    state = keys.child(CHILD)
    member = keys.sub(CHILD)
    event = "subagent left"
    stopped = "cancelled"

    async def begin(self) -> None:
        parent = await Parent.begin(self.client)
        await parent.spawn(CHILD)
        await parent.commit()

    def runner(self, agent: Agent, settings: AgentSettings, quarantine: Quarantine | None) -> Any:
        async def call(_claim: Any, _task: object, journal: LeaseJournal) -> AgentResult:
            return AgentResult(content=await agent(journal), entries=(), rounds=1, usage=TokenUsage())

        children = Subagents(self.client)
        return RunSubagent(children, call, settings=settings, quarantine=quarantine, clock=self.clock, rng=NoWaits())

    async def replies(self) -> list[str]:
        return [report.content for report in await reports(self.client)]

    async def stop(self) -> None:
        assert await Subagents(self.client).cancel(SESSION) == 1


@pytest.fixture(params=[TurnBench, SubagentBench], ids=["turn", "subagent"])
async def bench(request: pytest.FixtureRequest, client: RedisClient) -> Bench:
    made: Bench = request.param(client)
    await made.begin()
    return made


@pytest.fixture
def logs() -> Iterator[list[Any]]:
    with capture_logs() as lines:
        yield lines


def outcomes(bench: Bench, logs: list[Any]) -> list[str]:
    return [line["outcome"] for line in logs if line["event"] == bench.event]


async def attempt(loop: LeaseLoop) -> None:
    """Claim the work once and wait until its attempt has ended."""
    assert await loop.claim_once()
    await eventually(lambda: loop.running == 0)


def failing(*faults: Exception) -> Agent:
    """An agent that raises these one after the other, and then answers."""
    left = list(faults)

    async def agent(_journal: LeaseJournal) -> str:
        if left:
            raise left.pop(0)
        return "answered after all"

    return agent


async def never(_journal: LeaseJournal) -> str:
    raise AssertionError("no agent may run")


async def test_an_answer_ends_the_work_with_one_reply(bench: Bench, logs: list[Any]) -> None:
    """Claim, run, commit: nothing of the work is left in the queue."""
    loop = bench.loop(failing())
    await attempt(loop)
    [text] = await bench.replies()
    assert "answered after all" in text
    assert not await loop.claim_once()
    assert outcomes(bench, logs) == ["done" if bench.queue == "turns" else "ok"]
    [line] = [line for line in logs if line["event"] == bench.event]
    assert line["seconds"] == 0
    assert line["waited_ms"] >= 0


async def test_the_next_attempt_resumes_from_the_ledger_of_a_released_one(bench: Bench, logs: list[Any]) -> None:
    """A drain releases the work at its next border; steps are kept and nothing is counted."""
    found: list[int] = []

    async def agent(journal: LeaseJournal) -> str:
        found.append(len(journal.entries))
        if len(found) == 1:
            await journal.append(AssistantEntry(content="a step", turn=1))
            first.drain()
            await journal.checkpoint()
        return "done"

    first = bench.loop(agent)
    await attempt(first)
    assert await bench.waits()
    assert await bench.counters() == [None, None]
    assert await bench.replies() == []
    await attempt(bench.loop(agent))
    assert found == [0, 1]
    assert len(await bench.replies()) == 1
    assert outcomes(bench, logs)[0] == "released"


async def test_a_bug_is_tried_three_times_and_then_ends_the_work(bench: Bench, logs: list[Any]) -> None:
    """The reply says that something went wrong and gives nothing of the error away."""
    loop = bench.loop(failing(*[RuntimeError("secret detail")] * 3))
    for errors in range(1, 3):
        await attempt(loop)
        assert await bench.counters() == [str(errors).encode(), None]
    await attempt(loop)
    [text] = await bench.replies()
    assert "went wrong" in text
    assert "secret" not in text
    assert outcomes(bench, logs) == ["error", "error", "dead" if bench.queue == "turns" else "failed"]


async def test_a_limit_ends_the_work_with_its_own_words(bench: Bench) -> None:
    await attempt(bench.loop(failing(TurnLimited("tokens", "the budget of 10 tokens is used up"))))
    [text] = await bench.replies()
    assert "the budget of 10 tokens is used up" in text


async def test_a_request_to_come_back_releases_the_work(bench: Bench, logs: list[Any]) -> None:
    loop = bench.loop(failing(TurnReleased("quarantine", delay_s=30)))
    await attempt(loop)
    assert await bench.waits()
    assert not await loop.claim_once(), "it is due later"
    assert await bench.counters() == [None, None]
    assert outcomes(bench, logs) == ["released"]


async def test_too_many_crashes_end_the_work_without_running_it(bench: Bench) -> None:
    await bench.client.command("HSET", bench.state, "tries", 1, "crashes", CRASH_LIMIT)
    await attempt(bench.loop(never))
    [text] = await bench.replies()
    assert "makes me fail every time" in text


@pytest.mark.parametrize(
    ("verdict", "counted"),
    [("guilty", None), ("split", ("crashes", 3)), ("unproven", ("spared", 1)), ("ended", None)],
)
async def test_work_that_was_in_two_crashes_is_isolated_and_ends_by_the_verdict(
    bench: Bench, logs: list[Any], verdict: Verdict, counted: tuple[str, int] | None
) -> None:
    """`guilty` ends it as poison. `split` counts a crash, `unproven` a third of one; both release it. `ended` was
    the child's doing."""
    await bench.client.command("HSET", bench.state, "tries", 1, "crashes", AFTER_CRASHES)
    await attempt(bench.loop(never, FixedVerdict(verdict)))
    replies = await bench.replies()
    if verdict == "guilty":
        assert len(replies) == 1
        assert outcomes(bench, logs) == ["dead" if bench.queue == "turns" else "poison"]
        return
    assert replies == []
    assert outcomes(bench, logs) == [f"quarantine_{verdict}"]
    for name, count in {"crashes": AFTER_CRASHES, "spared": None, **dict([counted] if counted else [])}.items():
        assert await bench.client.command("HGET", bench.state, name) == (count and str(count).encode())


async def test_a_suspect_for_which_no_child_starts_runs_where_it_is(bench: Bench, logs: list[Any]) -> None:
    """It is answered, not passed around."""
    await bench.client.command("HSET", bench.state, "tries", 1, "crashes", AFTER_CRASHES)
    await attempt(bench.loop(failing(), FixedVerdict(None)))
    assert len(await bench.replies()) == 1
    assert outcomes(bench, logs) == ["done" if bench.queue == "turns" else "ok"]


async def test_a_suspended_lease_holds_the_result_back_until_it_is_renewed(bench: Bench) -> None:
    """Self-fence: past three quarters of the lease nothing is committed."""
    ran = asyncio.Event()

    async def agent(_journal: LeaseJournal) -> str:
        bench.clock.at += 0.8 * 30
        ran.set()
        return "kept"

    loop = bench.loop(agent)
    await loop.claim_once()
    await ran.wait()
    for _ in range(5):
        await asyncio.sleep(0)
    assert loop.running == 1
    assert await bench.replies() == []
    await loop.renew_once()
    await eventually(lambda: loop.running == 0)
    assert len(await bench.replies()) == 1


async def test_a_time_limit_that_passes_while_the_lease_is_suspended_releases_the_work(
    bench: Bench, logs: list[Any]
) -> None:
    """The time went to Redis and not to the work; the next owner resumes it."""

    async def agent(_journal: LeaseJournal) -> str:
        bench.clock.at += 0.8 * 30
        raise TimeoutError

    await attempt(bench.loop(agent))
    assert await bench.waits()
    assert outcomes(bench, logs) == ["released"]


async def test_a_time_limit_ends_the_work(bench: Bench, logs: list[Any]) -> None:
    async def agent(_journal: LeaseJournal) -> str:
        await asyncio.Event().wait()
        raise AssertionError

    await attempt(bench.loop(agent, turn_timeout_s=0.05, subagent_timeout_s=0.3))
    assert len(await bench.replies()) == 1
    assert outcomes(bench, logs) == ["dead" if bench.queue == "turns" else "timeout"]


async def test_work_whose_lease_was_lost_writes_nothing(bench: Bench, logs: list[Any]) -> None:
    running = asyncio.Event()

    async def agent(_journal: LeaseJournal) -> str:
        running.set()
        await asyncio.Event().wait()
        raise AssertionError

    loop = bench.loop(agent)
    await loop.claim_once()
    await running.wait()
    await bench.client.command("HSET", keys.leases(bench.queue), bench.member, "another:1")
    before = REGISTRY.get_sample_value("shoal_stale_writes_refused_total") or 0.0
    await loop.renew_once()
    await eventually(lambda: loop.running == 0)
    assert await bench.replies() == []
    assert outcomes(bench, logs) == []
    assert (REGISTRY.get_sample_value("shoal_stale_writes_refused_total") or 0.0) == before + 1


async def test_a_person_can_stop_the_work(bench: Bench, logs: list[Any]) -> None:
    running = asyncio.Event()

    async def agent(_journal: LeaseJournal) -> str:
        running.set()
        await asyncio.Event().wait()
        raise AssertionError

    loop = bench.loop(agent)
    await loop.claim_once()
    await running.wait()
    await bench.stop()
    await loop.renew_once()
    await eventually(lambda: loop.running == 0)
    assert outcomes(bench, logs) == [bench.stopped]
    assert not await loop.claim_once()


async def test_an_unavailable_model_releases_the_work_and_counts_no_error(bench: Bench, logs: list[Any]) -> None:
    loop = bench.loop(failing(ModelError("overloaded", "busy", retryable=True)))
    await attempt(loop)
    assert await bench.waits()
    assert await bench.counters() == [None, None]
    assert await bench.client.command("HEXISTS", bench.state, "away") == 1
    assert outcomes(bench, logs) == ["model_away"]


async def test_a_model_that_is_unavailable_for_too_long_ends_the_work(bench: Bench) -> None:
    first_seen_ms = Clock().now_ms() - 901_000
    await bench.client.command("HSET", bench.state, "tries", 1, "away", first_seen_ms)
    await attempt(bench.loop(failing(ModelError("overloaded", "busy", retryable=True))))
    [text] = await bench.replies()
    assert "could not be reached for a long time" in text


async def test_a_model_that_refuses_ends_the_work_at_once(bench: Bench) -> None:
    await attempt(bench.loop(failing(ModelError("bad_request", "400", retryable=False))))
    [text] = await bench.replies()
    assert "the model refused" in text.lower()


async def test_work_that_a_newer_release_began_is_left_to_it(bench: Bench, logs: list[Any]) -> None:
    """A step that this release cannot read belongs to a worker of the newer one."""
    ledger = keys.ledger(SESSION if bench.queue == "turns" else CHILD)
    await bench.client.command("XADD", ledger, "1-0", "m", b"\x82\xa1t\xa9of-future\xa4turn\x01")
    await bench.client.command("HSET", bench.state, "tries", 1, "ledger", 21)
    await attempt(bench.loop(never))
    assert await bench.waits()
    assert await bench.counters() == [None, None]
    assert outcomes(bench, logs) == ["left"]
