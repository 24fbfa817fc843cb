"""The jobs that keep memory: on arq, on real leases, on a real Valkey."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from arq import Retry
from arq.worker import Function
from structlog.testing import capture_logs

from shared.errors import ModelError, RedisAway, TryLater
from shared.ids import log_id
from shared.log import add_work
from shared.settings import MemorySettings
from shared.store import keys
from shared.store.client.redis_client import RedisClient
from shared.store.jobs.jobs import Jobs, SessionJobs
from shared.store.sessions.memory import MemoryChanged, MemoryStore, UnconsolidatedCounts
from shared.store.turns.queue import Claim, LeaseQueue
from tests.helpers.clock import HandClock
from tests.helpers.remembering import SCOPE, SESSION, command, fill, plain_turn, talk
from tests.helpers.scripted_model import Replies, ScriptedModel, call, calls
from tests.helpers.wait import eventually
from tests.worker.arq.test_lease_worker import working
from worker.arq.lease_worker import LeaseWorker
from worker.jobs.memory import (
    CRASHES_BEFORE_SKIP,
    PATIENT_TRIES,
    SOON_S,
    consolidate,
    idle,
    rework,
    wait_after,
    with_retries,
)
from worker.jobs.sweep import AGAIN_MS, MemorySweep, sweep
from worker.jobs.table import CRON, FUNCTIONS
from worker.lease.lease import Lease
from worker.memory.consolidator import Consolidator

AWAY = ModelError("overloaded", "busy", retryable=True)
LATER_MS = 9_999_999_999_999


def saved(text: str = "They talked.") -> Any:
    return calls(call("save_memory", {"history_entry": text, "memory_update": f"- {text}"}))


def dependencies(client: RedisClient, replies: Replies, settings: MemorySettings | None = None) -> SimpleNamespace:
    """What `context["deps"]` must have for these jobs."""
    settings = settings or MemorySettings(keep=4, idle_keep=2)
    memory = MemoryStore(client)
    return SimpleNamespace(
        memory=memory,
        consolidator=Consolidator(memory, ScriptedModel(replies), settings),
        sweep=MemorySweep(memory, SessionJobs(Jobs(client)), settings),
    )


def context(deps: SimpleNamespace, tries: int = 1) -> dict[str, Any]:
    return {"deps": deps, "job_try": tries}


async def due(client: RedisClient, key: str, member: str) -> None:
    """Somebody's time has come."""
    await client.command("ZADD", key, 1, member)


async def queued(client: RedisClient) -> list[str]:
    found = await client.command("ZRANGE", keys.queue("jobs"), 0, -1)
    return sorted(member.decode() for member in found)


async def test_consolidate_and_idle_bring_a_conversation_down_to_their_sizes(client: RedisClient) -> None:
    """`memory.keep` for a long one, `memory.idle_keep` for one that rests."""
    deps = dependencies(client, lambda _: saved())
    await fill(client, 10)
    await consolidate(context(deps), SESSION)
    assert await deps.memory.count_unconsolidated(SESSION) == UnconsolidatedCounts(4, 0)
    await idle(context(deps), SESSION)
    assert await deps.memory.count_unconsolidated(SESSION) == UnconsolidatedCounts(2, 0)


async def test_idle_settles_a_conversation_unless_somebody_spoke_meanwhile(client: RedisClient) -> None:
    """A turn that was committed while the job ran has given it another time."""
    deps = dependencies(client, lambda _: saved())
    await fill(client, 3)
    await due(client, keys.IDLE, SESSION)
    await idle(context(deps), SESSION)
    assert await deps.memory.idle.find(SESSION) is None

    async def speak() -> None:
        await talk(client, plain_turn(9), idle_ms=60_000)

    await due(client, keys.IDLE, SESSION)
    deps.consolidator.consolidate = lambda *_, **__: speak()
    await idle(context(deps), SESSION)
    found = await deps.memory.idle.find(SESSION)
    assert found is not None
    assert found.at_ms > 1


async def test_idle_brings_an_archive_that_waits_into_memory_first(client: RedisClient) -> None:
    """Should its job have been lost: what is older comes first, and the agenda is done with it."""
    deps = dependencies(client, lambda _: saved())
    await fill(client, 3)
    await command(client, "new")
    await idle(context(deps), SESSION)
    assert await deps.memory.idle.find(SESSION) is None
    assert await deps.memory.count_unconsolidated(SESSION) == UnconsolidatedCounts(0, 0)


async def test_rework_is_settled_when_it_is_done(client: RedisClient) -> None:
    """It is due again after the next consolidation."""
    deps = dependencies(client, lambda _: saved(), MemorySettings(rework_h=1, keep=4))
    await fill(client, 5)
    await consolidate(context(deps), SESSION)
    assert await deps.memory.rework.find(SCOPE) is not None
    await rework(context(deps), SCOPE)
    assert await deps.memory.rework.find(SCOPE) is None


@pytest.mark.parametrize(
    ("fault", "at_least_s", "at_most_s"),
    [
        (AWAY, 45, 60),
        (ModelError("rate_limit", "slow", retryable=True, retry_after_s=500), 500, 500),
        (ModelError("auth", "key", retryable=False), 45, 60),
        (RedisAway("gone"), SOON_S, SOON_S),
        (MemoryChanged("again"), SOON_S, SOON_S),
        (TimeoutError(), SOON_S, SOON_S),
    ],
)
async def test_what_may_pass_is_tried_later(fault: Exception, at_least_s: float, at_most_s: float) -> None:
    """Redis soon, the model with growing waits; the provider's own wish is heard."""

    async def work(patient: bool) -> None:
        assert patient
        raise fault

    with pytest.raises(TryLater) as later:
        await with_retries({"job_try": 1}, SESSION, work)
    assert at_least_s <= later.value.wait_s <= at_most_s


async def test_patience_ends_after_about_a_day() -> None:
    """Waits double up to an hour; from then on nothing is waited for any more."""
    asked: list[bool] = []

    async def work(patient: bool) -> None:
        asked.append(patient)

    for tries in (1, PATIENT_TRIES, PATIENT_TRIES + 1):
        await with_retries({"job_try": tries}, SESSION, work)
    assert asked == [True, True, False]
    assert all(wait_after(tries) <= 3600 for tries in range(1, 1000))
    assert 18 * 3600 < sum(wait_after(tries) for tries in range(1, PATIENT_TRIES + 1)) < 26 * 3600


async def test_a_model_that_stays_away_for_a_day_costs_no_word(client: RedisClient) -> None:
    """Until then the conversation waits; then it is kept raw."""
    deps = dependencies(client, lambda _: AWAY)
    await fill(client, 10)
    with pytest.raises(TryLater):
        await consolidate(context(deps, PATIENT_TRIES), SESSION)
    assert await deps.memory.count_unconsolidated(SESSION) == UnconsolidatedCounts(20, 0)
    await consolidate(context(deps, PATIENT_TRIES + 1), SESSION)
    assert await deps.memory.count_unconsolidated(SESSION) == UnconsolidatedCounts(4, 0)
    [entry] = await deps.memory.read_log(SCOPE)
    assert "[RAW]" in entry


async def test_a_bug_ends_the_job_and_is_logged() -> None:
    """arq would write the name of the chat into the log; ours has only its hash."""

    async def work(patient: bool) -> None:
        raise ZeroDivisionError

    with capture_logs(processors=[add_work]) as lines:
        await with_retries({"job_try": 1}, SESSION, work)
    [line] = lines
    assert (line["event"], line["log_level"], line["session"]) == ("job failed", "error", log_id(SESSION))
    assert SESSION not in str(line)


async def test_the_sweep_queues_what_is_due_and_puts_it_off(client: RedisClient) -> None:
    """Idle conversations, archives without a job, memories to be written anew: one job each, also by two sweeps."""
    deps = dependencies(client, [], MemorySettings(rework_h=1, idle_keep=2))
    await fill(client, 3)
    await fill(client, 3, chat="owner/b")
    await command(client, "new", chat="owner/b")
    await fill(client, 3, chat="owner/c")
    await client.command("ZADD", keys.IDLE, LATER_MS, "web:owner/c")
    await due(client, keys.IDLE, SESSION)
    await due(client, keys.REWORK, SCOPE)
    await asyncio.gather(deps.sweep.run_once(), deps.sweep.run_once())
    assert await queued(client) == sorted([f"consolidate:{SESSION}", "archive:web:owner/b", f"rework:{SCOPE}"])
    assert await deps.memory.idle.due() == []
    assert await deps.memory.rework.due() == []
    again = await deps.memory.idle.find(SESSION)
    assert again is not None
    assert again.at_ms > AGAIN_MS, "should the job be lost, it is found again"


async def test_the_sweep_settles_what_needs_nothing(client: RedisClient) -> None:
    """A conversation that is short enough, one that is gone, a rework that was turned off."""
    deps = dependencies(client, [], MemorySettings(dream=""))
    await fill(client, 1)
    for member in (SESSION, "web:owner/gone"):
        await due(client, keys.IDLE, member)
    await due(client, keys.REWORK, SCOPE)
    await deps.sweep.run_once()
    assert await queued(client) == []
    assert await client.command("EXISTS", keys.IDLE, keys.REWORK) == 0


async def test_without_idle_consolidation_the_sweep_still_archives(client: RedisClient) -> None:
    """`memory.idle_s = 0` turns off one thing only."""
    deps = dependencies(client, [], MemorySettings(idle_s=0))
    await fill(client, 20)
    await command(client, "new")
    await fill(client, 20)
    await deps.sweep.run_once()
    assert await queued(client) == [f"archive:{SESSION}"]


async def test_the_sweep_comes_through_a_crowd(client: RedisClient) -> None:
    """More than one reading takes; nobody is left out."""
    deps = dependencies(client, [])
    for n in range(230):
        await client.command("RPUSH", keys.history(f"web:owner/{n}"), "a", "b", "c")
        await due(client, keys.IDLE, f"web:owner/{n}")
    await deps.sweep.run_once()
    assert len(await queued(client)) == 230


async def test_a_sweep_without_redis_is_made_up_for_by_the_next(client: RedisClient) -> None:
    """It says so and ends."""

    async def gone() -> None:
        raise RedisAway("gone")

    await sweep({"deps": SimpleNamespace(sweep=SimpleNamespace(run_once=gone))})


@asynccontextmanager
async def serving(url: str, deps: SimpleNamespace, **options: Any) -> AsyncIterator[LeaseWorker]:
    """A worker with the real table of jobs."""
    async with working(url, _away, **options) as worker:
        worker.functions.update({function.name: function for function in FUNCTIONS})
        worker.ctx["deps"] = deps
        yield worker


async def test_jobs_run_from_the_queue_by_their_names(client: RedisClient, redis_url: str) -> None:
    """What a gateway or a commit asks for is what a worker does; an id is free again afterwards."""
    deps = dependencies(client, lambda _: saved())
    jobs = SessionJobs(Jobs(client))

    async def runs(job: Callable[[str], Awaitable[None]], waiting: UnconsolidatedCounts) -> None:
        await job(SESSION)
        await eventually(lambda: _empty(client))
        assert await deps.memory.count_unconsolidated(SESSION) == waiting

    async with serving(redis_url, deps):
        for _ in range(2):
            await fill(client, 10)
            await runs(jobs.consolidate, UnconsolidatedCounts(4, 0))
            await runs(jobs.idle, UnconsolidatedCounts(2, 0))
            await command(client, "new")
            await runs(jobs.archive, UnconsolidatedCounts(0, 0))
        await runs(jobs.rework, UnconsolidatedCounts(0, 0))
    assert await client.command("KEYS", "arq:*") == []


async def _empty(client: RedisClient) -> bool:
    return not await queued(client)


async def test_one_session_is_never_consolidated_twice_at_once(client: RedisClient, redis_url: str) -> None:
    """Asked for ten times while it runs, by commits and sweeps: one runs, nothing waits behind it."""
    gate, running, most = asyncio.Event(), 0, 0

    async def hold(*_: Any, **__: Any) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await gate.wait()
        running -= 1

    deps = dependencies(client, [])
    deps.consolidator.consolidate = hold
    jobs = SessionJobs(Jobs(client))
    async with serving(redis_url, deps, slots=5) as worker:
        await jobs.consolidate(SESSION)
        await eventually(lambda: running == 1)
        for _ in range(5):
            await jobs.consolidate(SESSION)
            await jobs.idle(SESSION)
        assert await queued(client) == [f"consolidate:{SESSION}"]
        gate.set()
        await eventually(lambda: worker.jobs_complete == 1)
        await eventually(lambda: _empty(client))
    assert most == 1


async def test_a_job_that_is_put_off_comes_back_by_itself(client: RedisClient, redis_url: str) -> None:
    """arq's Retry: the job stays in the queue, due later, and its record outlives the wait."""
    deps = dependencies(client, lambda _: AWAY)
    await fill(client, 10)
    async with serving(redis_url, deps) as worker:
        await SessionJobs(Jobs(client)).consolidate(SESSION)
        await eventually(lambda: worker.jobs_retried == 1)
        await eventually(lambda: _leases(client, 0))
    [member] = await queued(client)
    at_ms = float(await client.command("ZSCORE", keys.queue("jobs"), member))
    seconds, _ = await client.command("TIME")
    assert 40 < at_ms / 1000 - int(seconds) < 62
    assert await client.command("PTTL", f"arq:job:{member}") > 86_400_000


async def _leases(client: RedisClient, many: int) -> bool:
    return bool(await client.command("HLEN", keys.leases("jobs")) == many)


def test_the_table_has_every_job_with_its_limits() -> None:
    """Longer than arq's own limits; results are not kept, or an id could not be queued again."""
    names = ["consolidate", "idle", "archive", "rework", "forget_media", "title"]
    assert [function.name for function in FUNCTIONS] == names
    for function in FUNCTIONS:
        assert isinstance(function, Function)
        assert function.keep_result_s == 0
        assert function.timeout_s is not None
        assert function.timeout_s > 3600
        assert (function.max_tries or 0) > PATIENT_TRIES
    tick, throw_aways, logs, hourly = CRON
    assert (tick.name, tick.second, tick.minute, tick.unique) == ("sweep", 0, None, True)
    assert (throw_aways.name, throw_aways.second, throw_aways.minute) == ("throw-away sessions", 30, None)
    assert (logs.name, logs.second, logs.minute) == ("long logs", 15, None)
    assert (hourly.name, hourly.second, hourly.minute, hourly.hour) == ("expire media", 0, 17, None)


async def test_a_job_asks_arq_for_another_try() -> None:
    """TryLater is ours, Retry is arq's: only the table knows both."""
    deps = SimpleNamespace(consolidator=SimpleNamespace(consolidate=_away, settings=MemorySettings()))
    with pytest.raises(Retry) as retry:
        await FUNCTIONS[0].coroutine(context(deps), SESSION)
    assert 45_000 <= (retry.value.defer_score or 0) <= 60_000


async def _away(*_: Any, **__: Any) -> None:
    raise AWAY


async def test_a_job_that_workers_die_of_keeps_its_piece_raw(client: RedisClient, redis_url: str) -> None:
    """After three crashes nothing is done again that was done then: the model is not asked about that piece."""
    deps = dependencies(client, [])
    await fill(client, 4)
    id = f"consolidate:{SESSION}"
    await client.command("SET", keys.crashed(id), CRASHES_BEFORE_SKIP)
    async with serving(redis_url, deps) as worker:
        await SessionJobs(Jobs(client)).consolidate(SESSION)
        await eventually(lambda: worker.jobs_complete == 1)
    assert await deps.memory.count_unconsolidated(SESSION) == UnconsolidatedCounts(4, 0)
    [entry] = await deps.memory.read_log(SCOPE)
    assert "[RAW]" in entry
    assert "question 1" in entry
    assert await client.command("EXISTS", keys.crashed(id)) == 0


async def test_a_rework_that_workers_die_of_leaves_the_memory_as_it_is(client: RedisClient, redis_url: str) -> None:
    """It is settled, and due again after the next consolidation."""
    deps = dependencies(client, lambda _: saved(), MemorySettings(rework_h=1, keep=4))
    await fill(client, 5)
    await consolidate(context(deps), SESSION)
    before = await deps.memory.read_memory(SCOPE)
    await client.command("SET", keys.crashed(f"rework:{SCOPE}"), CRASHES_BEFORE_SKIP)
    deps.consolidator = Consolidator(deps.memory, ScriptedModel([]), MemorySettings())
    async with serving(redis_url, deps) as worker:
        await SessionJobs(Jobs(client)).rework(SCOPE)
        await eventually(lambda: worker.jobs_complete == 1)
    assert await deps.memory.read_memory(SCOPE) == before
    assert await deps.memory.rework.find(SCOPE) is None


async def test_a_drain_does_not_wait_for_a_memory_job(client: RedisClient, redis_url: str) -> None:
    """Its model call is given up, nothing of the conversation is lost, and the next worker takes it at once."""
    began = asyncio.Event()

    async def hang(*_: Any, **__: Any) -> None:
        began.set()
        await asyncio.Event().wait()

    deps = dependencies(client, [])
    deps.consolidator.consolidate = hang
    async with serving(redis_url, deps) as worker:
        worker.ctx["drain_s"] = 600
        await SessionJobs(Jobs(client)).consolidate(SESSION)
        await began.wait()
        worker.handle_sig(signal.SIGTERM)
        await eventually(lambda: worker.jobs_retried == 1)
        await eventually(lambda: _leases(client, 0))
    [member] = await queued(client)
    at_ms = float(await client.command("ZSCORE", keys.queue("jobs"), member))
    seconds, _ = await client.command("TIME")
    assert at_ms / 1000 < int(seconds) + 1
    assert await client.command("LLEN", keys.wake("jobs")) == 1


async def test_a_memory_job_that_meets_a_drain_does_not_begin(client: RedisClient) -> None:
    """Taken with the worker's last breath, it goes back before anything is asked."""
    queue = LeaseQueue(client, "jobs", owner="w", lease_s=30)
    claim = Claim("consolidate:x", "w", "1", 0, False, None)
    lease = Lease(claim, queue, claimed_at=0, clock=HandClock(), proxy=None)
    lease.drain()

    async def work(patient: bool) -> None:
        await asyncio.Event().wait()

    with pytest.raises(TryLater) as later:
        await with_retries({"job_try": 1, "job_id": "consolidate:x", "leases": {"consolidate:x": lease}}, SESSION, work)
    assert (str(later.value), later.value.wait_s) == ("drain", 0.0)
    await queue.close()
