"""arq's worker over leases: its jobs, retries, results and cron, on a real Valkey; and started by arq's own command."""

from __future__ import annotations

import asyncio
import inspect
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import arq.worker
import psutil
import pytest
from arq import Retry, cron, func
from arq.cron import CronJob
from arq.jobs import Job, JobResult
from structlog.testing import capture_logs

from shared.errors import SettingsError
from shared.ids import nonce
from shared.store import keys
from shared.store.client.redis_client import RedisClient
from shared.store.turns.inbox import Inbox
from shared.store.turns.queue import LeaseQueue
from tests.helpers.build import say
from tests.helpers.fleet import replies
from tests.helpers.processes import ROOT, Process
from tests.helpers.wait import eventually
from worker.arq.lease_worker import LeaseWorker, WakingRedis
from worker.arq.settings import ArqSettings
from worker.lease.lease_loop import LeaseLoop, Runner

Context = dict[str, Any]


@asynccontextmanager
async def working(
    url: str, *functions: Any, slots: int = 10, lease_s: float = 60, **options: Any
) -> AsyncIterator[LeaseWorker]:
    """A LeaseWorker with these functions, serving the jobs queue; drained at the end."""
    client = RedisClient(url)
    owner = nonce()

    def loops(run_job: Runner) -> list[LeaseLoop]:
        queue = LeaseQueue(client, "jobs", owner=owner, lease_s=lease_s)
        return [LeaseLoop(queue, slots=slots, run=run_job)]

    context = {"client": client, "redis_url": url, "lease_loops": loops, "drain_s": 0.2}
    worker = LeaseWorker(
        [func(function, name=function.__name__) for function in functions],
        queue_name=keys.queue("jobs"),
        ctx=context,
        handle_signals=False,
        job_serializer=ArqSettings.job_serializer,
        job_deserializer=ArqSettings.job_deserializer,
        **options,
    )
    running = asyncio.create_task(worker.async_run())
    await eventually(lambda: worker.ctx.get("redis"))
    try:
        yield worker
    finally:
        worker.handle_sig(signal.SIGTERM)
        await asyncio.wait([running], timeout=60)
        await worker.close()
        await client.close()


async def enqueue(worker: LeaseWorker, name: str, *args: Any, **options: Any) -> Job:
    pool = worker.ctx["redis"]
    assert isinstance(pool, WakingRedis)
    job = await pool.enqueue_job(name, *args, **options)
    assert job is not None
    return job


async def result(worker: LeaseWorker, job: Job) -> Any:
    return await job.result(timeout=60, poll_delay=0.01)


async def ended(job: Job) -> JobResult:
    info = await eventually(job.result_info)
    assert info is not None
    return info


async def double(ctx: Context, number: int) -> int:
    return number * 2


async def test_an_enqueued_job_runs_at_once_and_gives_its_result(redis_url: str) -> None:
    """enqueue_job wakes an idle worker; arguments and results are msgpack."""
    async with working(redis_url, double) as worker:
        job = await enqueue(worker, "double", 21)
        assert await result(worker, job) == 42
        left = await worker.ctx["client"].command(
            "EXISTS", keys.queue("jobs"), keys.leases("jobs"), f"arq:job:{job.job_id}"
        )
        assert left == 0


async def test_more_jobs_run_at_once_than_stock_arq_could_see(redis_url: str) -> None:
    """Running entries do not hide due ones: 250 jobs hold 250 slots (stock arq stops at 100)."""
    gate, running = asyncio.Event(), 0

    async def hold(ctx: Context) -> None:
        nonlocal running
        running += 1
        await gate.wait()

    async with working(redis_url, hold, slots=250) as worker:
        await asyncio.gather(*(enqueue(worker, "hold") for _ in range(250)))
        await eventually(lambda: running == 250)
        gate.set()
        await eventually(lambda: worker.jobs_complete == 250)


async def test_a_retry_comes_back_after_its_time_and_not_after_the_lease(redis_url: str) -> None:
    """arq's Retry adds to the score; with leases for scores it must be an absolute time."""
    tries: list[int] = []

    async def flaky(ctx: Context) -> str:
        tries.append(ctx["job_try"])
        if ctx["job_try"] < 3:
            raise Retry(defer=0.05)
        return "done"

    async with working(redis_url, flaky, lease_s=60) as worker:
        job = await enqueue(worker, "flaky")
        assert await asyncio.wait_for(result(worker, job), 30) == "done"
    assert tries == [1, 2, 3]


async def test_a_failed_job_keeps_its_error_as_text(redis_url: str) -> None:
    """msgpack cannot hold an exception; its repr is kept, and nothing is unpickled."""

    async def broken(ctx: Context) -> None:
        raise ValueError("no such thing")

    async with working(redis_url, broken) as worker:
        job = await enqueue(worker, "broken")
        info = await ended(job)
        assert not info.success
        assert info.result == "ValueError('no such thing')"


async def test_a_job_that_nobody_knows_fails_and_leaves_the_queue(redis_url: str) -> None:
    """finish_failed_job is guarded by the lease, too."""
    async with working(redis_url, double) as worker:
        job = await enqueue(worker, "unknown")
        info = await ended(job)
        assert "not found" in str(info.result)
        assert await worker.ctx["client"].command("ZCARD", keys.queue("jobs")) == 0


async def test_a_job_whose_data_is_a_pickle_is_refused(redis_url: str) -> None:
    """Bytes in Redis never run code: not msgpack, not run."""
    async with working(redis_url, double) as worker:
        client = worker.ctx["client"]
        await client.command("SET", "arq:job:evil", b"cos\nsystem\n(S'true'\ntR.")
        await client.command("ZADD", keys.queue("jobs"), 1, "evil")
        await client.command("LPUSH", keys.wake("jobs"), "1")
        await eventually(lambda: _gone(client, "evil"))
        assert worker.jobs_failed == 1


async def _gone(client: RedisClient, member: str) -> bool:
    return await client.command("ZSCORE", keys.queue("jobs"), member) is None


async def test_a_drained_job_is_claimed_by_the_next_worker(redis_url: str) -> None:
    """A job that is cut at the end of the drain goes back and runs elsewhere."""
    began = asyncio.Event()

    async def slow(ctx: Context) -> str:
        if ctx["job_try"] == 1:
            began.set()
            await asyncio.Event().wait()
        return "second"

    async with working(redis_url, slow) as first:
        job = await enqueue(first, "slow")
        await began.wait()
    async with working(redis_url, slow) as second:
        again = Job(
            job.job_id, second.ctx["redis"], _queue_name=second.queue_name, _deserializer=second.job_deserializer
        )
        assert await result(second, again) == "second"


async def test_a_job_that_is_leased_again_begins_when_its_lapsed_run_is_over(redis_url: str) -> None:
    """Both are in one worker, and arq knows them by the job's id: the end of one must not be written by the other."""
    events: list[str] = []
    began = asyncio.Event()

    async def slow(ctx: Context) -> str:
        events.append("begins")
        if began.is_set():
            return "second"
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            events.append("ends")
        return "first"

    with capture_logs() as logs:
        async with working(redis_url, slow, lease_s=30) as worker:
            job = await enqueue(worker, "slow")
            await began.wait()
            client = worker.ctx["client"]
            await client.command("ZADD", keys.queue("jobs"), 1, job.job_id)
            await client.run("jobs/wake", queue="jobs")
            assert await result(worker, job) == "second"
            assert not worker.ctx["leases"]
    assert events == ["begins", "ends", "begins"]
    assert [line["event"] for line in logs if line["log_level"] == "error"] == []


async def test_a_signal_while_it_starts_ends_it_as_soon_as_it_has_started(redis_url: str) -> None:
    """Nothing is taken; before, whoever stopped Shoal in its first second waited for all of `drain_s`."""
    started, go_on = asyncio.Event(), asyncio.Event()

    async def slowly(ctx: Context) -> None:
        started.set()
        await go_on.wait()

    client = RedisClient(redis_url)
    queue = LeaseQueue(client, "jobs", owner=nonce(), lease_s=5)
    loop = LeaseLoop(queue, slots=1, run=cast(Runner, None))
    worker = LeaseWorker(
        [func(double, name="double")],
        on_startup=slowly,
        ctx={"client": client, "redis_url": redis_url, "lease_loops": lambda _: [loop], "drain_s": 3600},
        handle_signals=False,
    )
    running = asyncio.create_task(worker.async_run())
    await started.wait()
    worker.handle_sig(signal.SIGTERM)
    go_on.set()
    async with asyncio.timeout(20):
        await running
    assert loop.draining
    await worker.close()
    await client.close()


async def test_a_cron_tick_runs_once_on_two_workers(redis_url: str) -> None:
    """arq's cron dedupes ticks by job id and kept result."""
    ticks: list[str] = []

    async def tick(ctx: Context) -> None:
        ticks.append(ctx["job_id"])

    def every_second() -> list[CronJob]:
        return [cron(tick, second=set(range(60)), microsecond=0)]

    async with working(redis_url, cron_jobs=every_second()), working(redis_url, cron_jobs=every_second()):
        await eventually(lambda: len(ticks) >= 3)
    assert len(set(ticks)) == len(ticks)


async def test_burst_mode_is_refused_with_a_reason(redis_url: str) -> None:
    """A chat worker has no end; arq's option is answered, not ignored."""
    worker = LeaseWorker([double], burst=True, handle_signals=False)
    with pytest.raises(SettingsError, match="burst"):
        await worker.main()


def test_the_seams_of_arq_are_where_they_were() -> None:
    """What LeaseWorker overrides and relies on in arq 0.28; a change of arq fails here first."""
    own = arq.worker.Worker.__mro__[1] if arq.worker.Worker is LeaseWorker else arq.worker.Worker
    parameters = {
        name: list(inspect.signature(getattr(own, name)).parameters)
        for name in (
            "main",
            "run",
            "async_run",
            "run_job",
            "finish_job",
            "finish_failed_job",
            "handle_sig",
            "close",
            "heart_beat",
        )
    }
    assert parameters == {
        "main": ["self"],
        "run": ["self"],
        "async_run": ["self"],
        "run_job": ["self", "job_id", "score"],
        "finish_job": [
            "self",
            "job_id",
            "finish",
            "result_data",
            "result_timeout_s",
            "keep_result_forever",
            "incr_score",
            "keep_in_progress",
        ],
        "finish_failed_job": ["self", "job_id", "result_data"],
        "handle_sig": ["self", "signum"],
        "close": ["self"],
        "heart_beat": ["self"],
    }
    assert inspect.signature(LeaseWorker) == inspect.signature(own), "arq's command passes settings by these names"


def test_importing_the_settings_makes_arq_build_our_worker() -> None:
    """The one assignment by which `arq worker.main.WorkerSettings` gets a LeaseWorker."""
    code = (
        "import arq.worker, worker.main as m;"
        "w = arq.worker.create_worker(m.WorkerSettings);"
        "print(type(w).__name__, w.queue_name)"
    )
    command, env = [sys.executable, "-c", code], {**os.environ, "SHOAL_REDIS__URL": "redis://localhost"}
    finished = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=True)
    assert finished.stdout.split() == ["LeaseWorker", "shoal:{0ax}:queue:jobs"]


async def test_arqs_own_command_runs_turns_under_a_guardian_and_drains(redis_url: str, tmp_path: Path) -> None:
    """`arq worker.main.WorkerSettings`: answers, has its guardian as a child, leaves with code 0 on SIGTERM."""
    worker = Process("arq", "worker.main.WorkerSettings", env={"SHOAL_REDIS__URL": redis_url}, log=tmp_path / "arq.log")
    client = RedisClient(redis_url)
    try:
        await say(Inbox(client), "What is 6*7?")
        [answer] = await eventually(lambda: replies(client, "web:owner/a"), within_s=60)
        assert "42" in answer
        [guardian] = worker.children()
        assert "worker.process.guardian" in guardian.cmdline()
        worker.terminate()
        assert await asyncio.to_thread(worker.wait) == 0
        await eventually(lambda: not psutil.pid_exists(guardian.pid))
    finally:
        worker.kill_group()
        await client.close()


async def test_the_guardian_of_arqs_command_frees_the_leases_of_a_killed_worker(redis_url: str, tmp_path: Path) -> None:
    """As a child it sees the end of the link as well."""
    worker = Process(
        "arq",
        "worker.main.WorkerSettings",
        env={"SHOAL_REDIS__URL": redis_url, "SHOAL_WORKER__LEASE_S": "60"},
        log=tmp_path / "arq.log",
    )
    client = RedisClient(redis_url)
    try:
        await say(Inbox(client), "tell me a long story")
        await eventually(lambda: client.command("HLEN", keys.leases("turns")), within_s=60)
        worker.popen.kill()
        await eventually(lambda: _free(client))
    finally:
        worker.kill_group()
        await client.close()


async def _free(client: RedisClient) -> bool:
    return int(await client.command("HLEN", keys.leases("turns"))) == 0
