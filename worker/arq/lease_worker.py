"""arq's worker on our queue: its functions, context, hooks, cron and results; our leases for its
claims. Stock arq leaves running jobs at the head of its sorted set. That caps a fleet at
`queue_read_limit` jobs at once, and a dead worker's job is free only after the longest timeout.
Here a running job is an entry whose score is its lease."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from functools import cached_property
from typing import Any, Final
from weakref import WeakValueDictionary

from arq import worker as arq_worker
from arq.connections import ArqRedis
from arq.constants import abort_jobs_ss, job_key_prefix, result_key_prefix, retry_key_prefix
from arq.jobs import Job
from arq.utils import timestamp_ms
from redis.asyncio import BlockingConnectionPool
from redis.asyncio.connection import AbstractConnection
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import ReadOnlyError

from shared.errors import LeaseLost, RedisAway, SettingsError
from shared.log import logger
from shared.metrics import QUEUE_WAIT_SECONDS
from shared.store import keys
from shared.store.client.redis_client import SOCKET_TIMEOUT_S, RedisClient
from shared.tasks import event_within
from worker.lease.lease import Lease
from worker.lease.lease_loop import LeaseLoop, Runner
from worker.process.loop_group import LoopGroup

HEART_BEAT_S: Final = 0.5
TICK_KEPT_S: Final = 60.0

log = logger("worker")


class WakingRedis(ArqRedis):
    """arq's client. It also wakes a worker when it enqueues."""

    waker: RedisClient

    async def enqueue_job(self, function: str, *args: Any, **kwargs: Any) -> Job | None:
        """Enqueue as arq does, then have one idle worker read the queue."""
        job = await super().enqueue_job(function, *args, **kwargs)
        if job is not None:
            queue = kwargs.get("_queue_name") or self.default_queue_name
            await self.waker.run("jobs/wake", [keys.wake(queue.removeprefix(keys.queue("")))])
        return job


class LeaseWorker(arq_worker.Worker):
    """Runs `ctx["lease_loops"](run_job)` until a signal stops it. Takes every argument of arq's
    Worker. `on_startup` puts into the context: `client` (RedisClient), `redis_url`, `lease_loops`,
    `drain_s`. A job finds its own Lease there in `leases`, by its id. Signals: see `LoopGroup`."""

    _claims: dict[str, Lease]
    _scores: dict[str, int]
    _turns: WeakValueDictionary[str, asyncio.Lock]

    @cached_property
    def _loop_group(self) -> LoopGroup:
        def give_up() -> None:
            if self.main_task is not None:
                self.main_task.cancel()

        return LoopGroup(drain_s=lambda: self.ctx.get("drain_s", 0), give_up=give_up)

    async def main(self) -> None:
        """Start, and run until drained."""
        if self.burst:
            hint = "a chat worker has no end; run it without --burst"
            raise SettingsError(f"burst mode is not supported: {hint}")
        if self.on_startup:
            await self.on_startup(self.ctx)
        self.open()
        make_loops: Callable[[Runner], list[LeaseLoop]] = self.ctx["lease_loops"]
        loops = make_loops(self.run_leased)
        ending = asyncio.Event()
        beating = asyncio.create_task(self.queue_timed_jobs(ending))
        try:
            await self._loop_group.run(loops)
        finally:
            ending.set()
            await beating

    def open(self) -> None:
        """Prepare to run jobs and to queue those that have a time. Connects nothing yet."""
        self._claims, self._scores, self._turns = {}, {}, WeakValueDictionary()
        for job in self.cron_jobs:
            # arq recognizes a tick that was queued before by a claim that outlives the job. Here the
            # kept result does that.
            job.keep_result_s = job.keep_result_s or TICK_KEPT_S
        if self._pool is None:
            self._pool = pool = WakingRedis(
                _make_pool(self.ctx["redis_url"]),
                job_serializer=self.job_serializer,
                job_deserializer=self.job_deserializer,
                default_queue_name=self.queue_name,
                expires_extra_ms=self.expires_extra_ms,
            )
            pool.waker = self.ctx["client"]
        self.ctx["redis"] = self._pool
        self.ctx["leases"] = self._claims

    def handle_sig(self, signum: signal.Signals) -> None:
        """Drain; on a second signal interrupt what is still running."""
        self._loop_group.on_signal(signum)

    async def finish_job(
        self,
        job_id: str,
        finish: bool,
        result_data: bytes | None,
        result_timeout_s: float | None,
        keep_result_forever: bool,
        incr_score: int | None,
        keep_in_progress: float | None,
    ) -> None:
        """End the job if its lease still holds. A later try gets an absolute time: the score of the
        entry is the lease, so nothing can be added to it."""
        score = self._scores[job_id]
        delay_ms = max(0, score + incr_score - timestamp_ms()) if incr_score else 0
        keep_ms = 0 if keep_result_forever else int((result_timeout_s or 0) * 1000)
        await self._finish(job_id, finish, delay_ms, result_data, keep_ms)

    async def finish_failed_job(self, job_id: str, result_data: bytes | None) -> None:
        """End a job that cannot be run at all."""
        keep_ms = 0 if self.keep_result_forever else int(self.keep_result_s * 1000)
        wanted = self.keep_result_forever or self.keep_result_s > 0
        await self._finish(job_id, True, 0, result_data if wanted else None, keep_ms)

    async def close(self) -> None:
        """Close what `on_startup` opened."""
        if self._pool is None:
            return
        if self.on_shutdown:
            await self.on_shutdown(self.ctx)
        await self.pool.aclose(close_connection_pool=True)
        self._pool = None

    async def run_leased(self, lease: Lease) -> None:
        """Run one plain arq job under its lease."""
        QUEUE_WAIT_SECONDS.labels(lease.queue.name).observe(lease.claim.waited_ms / 1000)
        job_id = lease.claim.member

        def cancel() -> None:
            if (task := self.job_tasks.get(job_id)) is not None:
                task.cancel()

        # arq knows a run by the id of its job alone. So a run that lapsed, and whose job this
        # worker has leased again, must be over before the next one begins.
        if (earlier := self._claims.get(job_id)) is not None:
            earlier.lose()
        async with self._turns.setdefault(job_id, asyncio.Lock()):
            score = timestamp_ms()
            self._claims[job_id], self._scores[job_id] = lease, score
            try:
                # Only the job itself may be cancelled. arq then writes its end, still under the
                # lease, and must finish that.
                with lease.cancelled_by(cancel):
                    await self.run_job(job_id, score)
            finally:
                del self._claims[job_id], self._scores[job_id]

    async def _finish(self, job_id: str, finish: bool, delay_ms: int, result: bytes | None, keep_ms: int) -> None:
        lease, client = self._claims[job_id], self.ctx["client"]
        name, prefixes = lease.queue.name, (result_key_prefix, retry_key_prefix, job_key_prefix)
        names = [keys.queue(name), keys.leases(name), keys.wake(name)]
        names += [*(prefix + job_id for prefix in prefixes), abort_jobs_ss]
        args = [job_id, lease.claim.lease_id, int(finish), delay_ms, result or b"", keep_ms]
        patience_s = self.ctx["drain_s"]
        if await client.run("jobs/finish", names, args, retry_for_s=patience_s) != 1:
            raise LeaseLost(f"the lease on {job_id!r} is lost")

    async def queue_timed_jobs(self, ending: asyncio.Event) -> None:
        """Queue jobs at their times until `ending`."""
        while self.cron_jobs and not ending.is_set():
            try:
                await self.heart_beat()
            except RedisAway:
                pass
            except Exception as exc:
                log.warning("cron not queued", error=type(exc).__name__)
            await event_within(ending, HEART_BEAT_S)


class _PrimaryOnly(AbstractConnection):
    """Leaves a server that was demoted. redis-py would keep the connection, and every job would fail
    for ever."""

    async def read_response(self, *args: Any, **kwargs: Any) -> Any:
        """Read a reply; a refusal to write ends the connection."""
        try:
            return await super().read_response(*args, **kwargs)
        except ReadOnlyError as exc:
            await self.disconnect(nowait=True)
            raise RedisConnectionError(str(exc)) from exc


def _make_pool(url: str) -> BlockingConnectionPool:
    # A connection does not introduce itself as redis-py: two commands fewer after each reconnect,
    # and no right to use them is needed.
    more: dict[str, Any] = {"lib_name": None, "lib_version": None}
    if url.startswith("rediss://"):
        # The certificate must be for this host: redis-py would accept any one of its authority.
        more["ssl_check_hostname"] = True
    pool = BlockingConnectionPool.from_url(
        url,
        socket_timeout=SOCKET_TIMEOUT_S,
        socket_connect_timeout=SOCKET_TIMEOUT_S,
        max_connections=8,
        timeout=None,
        **more,
    )
    # The address decides between TCP, TLS and a socket of this machine; each of them leaves a replica.
    kind = pool.connection_class
    pool.connection_class = type(kind.__name__, (_PrimaryOnly, kind), {})
    return pool
