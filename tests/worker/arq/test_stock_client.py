"""Stock arq as a client of a fleet: its queue, results, health check and functions, on a real Valkey."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import arq
import msgspec
import pytest
from arq.connections import ArqRedis, RedisSettings
from arq.jobs import JobStatus
from redis.asyncio import Redis

from shared.errors import LeaseLost
from shared.ids import nonce
from shared.store import keys
from shared.store.client.redis_client import RedisClient
from shared.store.subagents.subagents import Subagents
from shared.store.turns.inbox import Inbox
from shared.store.turns.queue import LeaseQueue
from tests.helpers.build import say
from tests.helpers.children import Parent
from tests.helpers.fleet import replies
from tests.helpers.processes import ROOT, Process
from tests.helpers.wait import eventually
from tests.worker.arq.test_lease_worker import working
from worker.arq.lease_worker import LeaseWorker, redis_settings
from worker.jobs.table import probe, run_subagent, run_turn
from worker.lease.lease import Lease
from worker.lease.lease_loop import LeaseLoop, Runner


@pytest.fixture
async def stock(redis_url: str) -> AsyncIterator[ArqRedis]:
    """The client of another program, as docs/architecture/arq.md shows it."""
    pool = await arq.create_pool(
        RedisSettings.from_dsn(redis_url),
        job_serializer=msgspec.msgpack.encode,
        job_deserializer=msgspec.msgpack.decode,
        default_queue_name="shoal:{0ax}:queue:jobs",
    )
    yield pool
    await pool.aclose()


@pytest.fixture
def start(redis_url: str, tmp_path: Path) -> Iterator[Any]:
    started: list[Process] = []

    def one(*words: str) -> Process:
        started.append(Process("worker", *words, env={"SHOAL_REDIS__URL": redis_url}, log=tmp_path / "worker.log"))
        return started[-1]

    yield one
    for process in started:
        process.kill_group()


def check(redis_url: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "SHOAL_REDIS__URL": redis_url}
    command = [sys.executable, "-m", "arq", "--check", "worker.main.WorkerSettings"]
    return subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)


async def test_arqs_check_finds_a_worker_for_turns_alone(client: RedisClient, redis_url: str, start: Any) -> None:
    """It exits with 1 before there is a worker, and with 0 as soon as one of ours runs, whatever it serves."""
    before = await asyncio.to_thread(check, redis_url)
    assert (before.returncode, "no health check sentinel" in before.stderr) == (1, True)
    worker = start("turns")
    health = await eventually(lambda: client.command("GET", "arq:health-check"), within_s=30)
    assert b"j_complete=0 j_failed=0 j_retried=0 j_ongoing=0 queued=0" in health
    assert 0 < await client.command("PTTL", "arq:health-check") <= 30_000
    after = await asyncio.to_thread(check, redis_url)
    assert after.returncode == 0, after.stderr
    await say(Inbox(client), "What is 6*7?")
    [answer] = await eventually(lambda: replies(client, "web:owner/a"), within_s=30)
    assert "42" in answer
    worker.terminate()
    assert await asyncio.to_thread(worker.wait) == 0


def test_arqs_check_with_wrong_settings_is_one_line() -> None:
    """It names the key, as every start with wrong settings does."""
    ran = check("http://somewhere")
    assert ran.returncode == 2
    assert "redis.url" in ran.stderr
    assert len(ran.stderr.splitlines()) == 1


async def test_another_program_queues_a_job_and_reads_its_result(redis_url: str, stock: ArqRedis) -> None:
    """Nobody wakes a worker for it: a wait of each ends within a second. The result is kept as arq keeps it."""
    async with working(redis_url, probe):
        job = await stock.enqueue_job("probe", "hello", _job_id="mine")
        assert job is not None
        assert await job.result(timeout=60, poll_delay=0.01) == "hello"
        assert await stock.enqueue_job("probe", "again", _job_id="mine") is None
        assert await job.status() == JobStatus.complete
        [found] = await stock.all_job_results()
        assert (found.job_id, found.function, found.success, found.result) == ("mine", "probe", True, "hello")
        assert await stock.queued_jobs() == []


async def test_queued_jobs_lists_subagents_as_calls_of_their_function(client: RedisClient, stock: ArqRedis) -> None:
    """Before, it raised while one was queued. What has ended leaves the list, and nothing of it in Redis."""
    parent = await Parent.begin(client, chat="owner/a")
    await parent.spawn("aaaaaaaa", "bbbbbbbb")
    job = await stock.enqueue_job("probe", "hello")
    assert job is not None
    found = {one.job_id: one for one in await stock.queued_jobs()}
    assert set(found) == {"sub:aaaaaaaa", "sub:bbbbbbbb", job.job_id}
    subagent = found["sub:aaaaaaaa"]
    assert (subagent.function, list(subagent.args), subagent.kwargs) == ("run_subagent", ["aaaaaaaa"], {})
    assert abs(subagent.enqueue_time.timestamp() * 1000 - found[job.job_id].enqueue_time.timestamp() * 1000) < 60_000
    assert await Subagents(client).cancel("web:owner/a") == 2
    assert [one.job_id for one in await stock.queued_jobs()] == [job.job_id]
    assert await client.command("EXISTS", "arq:job:sub:aaaaaaaa", "arq:job:sub:bbbbbbbb") == 0


async def test_a_subagent_that_a_sweep_queues_again_is_listed(client: RedisClient, stock: ArqRedis) -> None:
    """The server lost its newest writes, the record of arq among them."""
    parent = await Parent.begin(client, chat="owner/a")
    await parent.spawn("aaaaaaaa")
    await client.command("DEL", keys.queue("jobs"), "arq:job:sub:aaaaaaaa")
    assert await Subagents(client).requeue_lost() == 1
    [found] = await stock.queued_jobs()
    assert (found.job_id, found.function) == ("sub:aaaaaaaa", "run_subagent")


@pytest.mark.parametrize("arguments", [(), ("web:owner/a",)])
async def test_a_turn_cannot_be_queued_as_a_job(redis_url: str, stock: ArqRedis, arguments: tuple[str, ...]) -> None:
    """It would run beside the lease of its chat; the result says what to do instead."""
    async with working(redis_url, run_turn, run_subagent):
        for name in ("run_turn", "run_subagent"):
            job = await stock.enqueue_job(name, *arguments)
            assert job is not None
            info = await eventually(job.result_info)
            assert info is not None
            assert not info.success
            assert ("send the chat a message" in info.result) == bool(arguments)


async def test_turns_are_calls_of_a_function_with_arqs_context_and_the_lease(
    client: RedisClient, redis_url: str
) -> None:
    """The table decides what runs them: `run_turn` of another table gets them instead."""
    calls: list[tuple[dict[str, Any], Lease]] = []

    async def run_turn(ctx: dict[str, Any], lease: Lease) -> None:
        calls.append((ctx, lease))
        if len(calls) == 1:
            await lease.release()
            raise LeaseLost("as if it were")
        await lease.release(delay_s=60)

    def loops(runner: Runner) -> list[LeaseLoop]:
        queue = LeaseQueue(client, "turns", owner=nonce(), lease_s=5)
        return [LeaseLoop(queue, slots=1, run=runner)]

    context = {"client": client, "redis_url": redis_url, "lease_loops": loops, "drain_s": 0.2}
    worker = LeaseWorker([arq.func(run_turn, name="run_turn")], ctx=context, handle_signals=False)
    await say(Inbox(client), "hello")
    running = asyncio.create_task(worker.async_run())
    await eventually(lambda: worker.jobs_complete, within_s=60)
    worker.handle_sig(signal.SIGTERM)
    await running
    await worker.close()
    ctx, lease = calls[1]
    assert lease.claim.turn is not None
    assert (ctx["job_id"], ctx["job_try"]) == ("turn:web:owner/a", lease.claim.turn.attempt)
    assert ctx["enqueue_time"].timestamp() * 1000 == pytest.approx(ctx["score"], abs=1)
    assert isinstance(ctx["redis"], ArqRedis)
    assert (worker.jobs_failed, worker.jobs_complete) == (1, 1)


@pytest.mark.parametrize(
    "url",
    [
        "redis://user:p%40ss@redis.example:7000/3",
        "unix:///run/redis.sock?db=2",
        "rediss://redis.example/0?ssl_ca_certs=/ca.pem&ssl_certfile=/c.pem&ssl_keyfile=/k.pem",
    ],
)
def test_the_check_connects_where_the_worker_does(url: str) -> None:
    """User, password, database and certificates are those of `redis.url`, as redis-py itself reads it."""
    found, oracle = redis_settings(url), Redis.from_url(url).connection_pool.connection_kwargs
    assert found.database == int(oracle.get("db", 0))
    assert (found.username, found.password) == (oracle.get("username"), oracle.get("password"))
    assert found.unix_socket_path == oracle.get("path")
    if found.unix_socket_path is None:
        assert (found.host, found.port) == (oracle["host"], oracle.get("port", 6379))
    assert found.ssl == url.startswith("rediss")
    assert (found.ssl_ca_certs, found.ssl_certfile) == (oracle.get("ssl_ca_certs"), oracle.get("ssl_certfile"))
    assert found.ssl_check_hostname or not found.ssl
