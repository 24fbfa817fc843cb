"""arq's worker on our queues: its functions, context, hooks, cron, health and results; our leases
for its claims. Stock arq leaves running jobs at the head of its sorted set. That caps a fleet at
`queue_read_limit` jobs at once, and a dead worker's job is free only after the longest timeout.
Here a running job is an entry whose score is its lease."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Callable
from datetime import datetime
from functools import cached_property
from typing import Any, Final
from weakref import WeakValueDictionary

from arq import connections as arq_connections
from arq import jobs as arq_jobs
from arq import worker as arq_worker
from arq.connections import ArqRedis, RedisSettings
from arq.jobs import Job
from arq.utils import ms_to_datetime, timestamp_ms
from redis.asyncio import BlockingConnectionPool
from redis.asyncio.connection import AbstractConnection, Connection, SSLConnection, UnixDomainSocketConnection
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import MovedError, ReadOnlyError

from shared.errors import LeaseLost, RedisAway, SettingsError
from shared.log import logger
from shared.metrics import QUEUE_WAIT_SECONDS
from shared.store import keys
from shared.store.client.address import Address, Locator, Tls, read_address
from shared.store.client.redis_client import SOCKET_TIMEOUT_S, RedisClient
from shared.tasks import event_within
from worker.lease.lease import Lease
from worker.lease.lease_loop import LeaseLoop, Runner
from worker.process.loop_group import LoopGroup

HEART_BEAT_S: Final = 0.5
TICK_KEPT_S: Final = 60.0
HEALTH_EVERY_S: Final = 10.0
HEALTH_KEPT_MS: Final = 30_000

log = logger("worker")


class WakingRedis(ArqRedis):
    """arq's client. It also wakes a worker when it enqueues."""

    waker: RedisClient

    async def enqueue_job(self, function: str, *args: Any, **kwargs: Any) -> Job | None:
        """Enqueue as arq does, then have one idle worker read the queue."""
        job = await super().enqueue_job(function, *args, **kwargs)
        if job is not None:
            queue = kwargs.get("_queue_name") or self.default_queue_name
            await self.waker.run("jobs/wake", queue=queue.removeprefix(keys.queue("")))
        return job


class LeaseWorker(arq_worker.Worker):
    """Runs `ctx["lease_loops"](run_leased)` until a signal stops it. Takes every argument of arq's
    Worker. `on_startup` puts into the context: `client` (RedisClient), `redis_url`, `lease_loops`,
    `drain_s`. Turns and subagents are calls of the functions `run_turn` and `run_subagent`, with
    arq's context and their lease. A job finds its own Lease in `ctx["leases"]`, by its id. Signals:
    see `LoopGroup`."""

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
            raise SettingsError("burst mode is not supported: a chat worker has no end; run it without --burst")
        if self.on_startup:
            await self.on_startup(self.ctx)
        self.open()
        make_loops: Callable[[Runner], list[LeaseLoop]] = self.ctx["lease_loops"]
        loops = make_loops(self.run_leased)
        ending = asyncio.Event()
        beating = asyncio.create_task(self._keep_beating(ending))
        try:
            await self._loop_group.run(loops)
        finally:
            ending.set()
            await beating

    def open(self) -> None:
        """Prepare to run jobs and to queue those that have a time. Connects nothing yet."""
        self._claims, self._scores, self._turns = {}, {}, WeakValueDictionary()
        for job in self.cron_jobs:
            # arq recognizes a tick that was queued before by a claim that outlives the job. Here
            # the kept result does that.
            job.keep_result_s = job.keep_result_s or TICK_KEPT_S
        client: RedisClient = self.ctx["client"]
        if client.arq != keys.ARQ:
            _rename_keys(client.arq)
            self.health_check_key = self.health_check_key.replace(keys.ARQ, client.arq)
        if self._pool is None:
            self._pool = pool = WakingRedis(
                _make_pool(self.ctx["redis_url"], client.locator),
                job_serializer=self.job_serializer,
                job_deserializer=self.job_deserializer,
                default_queue_name=self.queue_name,
                expires_extra_ms=self.expires_extra_ms,
            )
            pool.waker = client
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
        """Call the function that this lease is for."""
        claim = lease.claim
        work = claim.turn or claim.subagent
        if work is None:
            await self._run_job(lease)
            return
        function = self.functions["run_turn" if claim.turn else "run_subagent"]
        due_ms = timestamp_ms() - claim.waited_ms
        job = {"job_id": claim.member, "job_try": work.attempt, "score": due_ms}
        job["enqueue_time"] = ms_to_datetime(due_ms)
        try:
            # Not through arq's `run_job`: it reads the arguments from Redis, cancels at a timeout
            # of its own, and stores a result. The lease has brought all that a turn needs.
            await function.coroutine({**self.ctx, **job}, lease)
        except BaseException:
            self.jobs_failed += 1
            raise
        self.jobs_complete += 1

    async def record_health(self) -> None:
        """Write the key that `arq --check` reads, in arq's words. All workers write the same one,
        and none deletes it: it says that the fleet has a worker."""
        now = time.monotonic()
        if self._last_health_check and now - self._last_health_check < HEALTH_EVERY_S:
            return
        client = self.ctx["client"]
        queued = await client.command("ZCARD", self.queue_name)
        counts = f"j_complete={self.jobs_complete} j_failed={self.jobs_failed}"
        counts += f" j_retried={self.jobs_retried} j_ongoing={self._loop_group.running} queued={queued}"
        health = f"{datetime.now(tz=self.timezone):%b-%d %H:%M:%S} {counts}"
        await client.command("SET", self.health_check_key, health, "PX", HEALTH_KEPT_MS)
        # After the write: one that failed is tried again with the next beat.
        self._last_health_check = now

    async def _run_job(self, lease: Lease) -> None:
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
        lease = self._claims[job_id]
        client = self.ctx["client"]
        finished = await client.run(
            "jobs/finish",
            queue=lease.queue.name,
            result=f"{client.arq}result:{job_id}",
            retry=f"{client.arq}retry:{job_id}",
            job=f"{client.arq}job:{job_id}",
            abort=f"{client.arq}abort",
            member=job_id,
            lease=lease.claim.lease_id,
            is_over=int(finish),
            delay_ms=delay_ms,
            record=result or b"",
            keep_ms=keep_ms,
            retry_for_s=self.ctx["drain_s"],
        )
        if finished != b"finished":
            raise LeaseLost(f"the lease on {job_id!r} is lost")

    async def _keep_beating(self, ending: asyncio.Event) -> None:
        """Queue jobs at their times and record health until `ending`."""
        while not ending.is_set():
            try:
                await self.heart_beat()
            except RedisAway:
                pass
            except Exception as exc:
                log.warning("heart beat failed", error=type(exc).__name__)
            await event_within(ending, HEART_BEAT_S)


def _rename_keys(prefix: str) -> None:
    """Have arq begin its keys with `prefix`, which has a hash tag: it uses them together. They are
    constants in each of its modules."""
    for module in (arq_worker, arq_connections, arq_jobs):
        for name, value in vars(module).items():
            # Once: the new names begin like the old ones.
            if name.endswith(("_key_prefix", "abort_jobs_ss")) and not value.startswith(prefix):
                setattr(module, name, value.replace(keys.ARQ, prefix, 1))


class _PrimaryOnly(AbstractConnection):
    """Connects where our own client does, and leaves a server that was demoted. redis-py would keep
    the connection, and every job would fail for ever."""

    locator: Locator
    _server = Address()

    async def _connect(self) -> None:
        self._server = at = await self.locator.locate()
        self.host = at.host
        self.port = at.port
        self.username = at.user or None
        self.password = at.password or None
        # It is the kind of connection that comes next in the order of classes.
        await super()._connect()  # type: ignore[safe-super,no-untyped-call]

    async def send_packed_command(self, *args: Any, **kwargs: Any) -> Any:
        """Send commands, over a new connection if another server has become the primary."""
        if not self.locator.is_current(self._server):
            await self.disconnect(nowait=True)
        return await super().send_packed_command(*args, **kwargs)

    async def read_response(self, *args: Any, **kwargs: Any) -> Any:
        """Read a reply; a refusal to write, or our slot's move, ends the connection."""
        try:
            return await super().read_response(*args, **kwargs)
        except (ReadOnlyError, MovedError) as exc:
            await self.disconnect(nowait=True)
            raise RedisConnectionError(str(exc)) from exc


def _make_pool(url: str, locator: Locator) -> BlockingConnectionPool:
    # A connection does not introduce itself as redis-py: two commands fewer after each reconnect,
    # and no right to use them is needed.
    more: dict[str, Any] = {"lib_name": None, "lib_version": None}
    at = locator.address
    # The address decides between TCP, TLS and a socket of this machine; each of them leaves a
    # replica.
    kind: type[AbstractConnection] = Connection
    if at.path:
        kind = UnixDomainSocketConnection
        more["path"] = at.path
    elif at.tls is not None:
        # The certificate must be for this host: redis-py would accept any one of its authority.
        settings = redis_settings(url)
        kind = SSLConnection
        more |= {name: getattr(settings, name) for name in RedisSettings.__annotations__ if name.startswith("ssl_")}
    return BlockingConnectionPool(
        connection_class=type(kind.__name__, (_PrimaryOnly, kind), {"locator": locator}),
        db=at.db,
        socket_timeout=SOCKET_TIMEOUT_S,
        socket_connect_timeout=SOCKET_TIMEOUT_S,
        max_connections=8,
        timeout=None,
        **more,
    )


def redis_settings(url: str) -> RedisSettings:
    """Return an address of Redis in arq's words, for the check of its command. arq itself can ask
    Sentinels without a password only, and over TLS only if it needs no further files."""
    at = read_address(url).with_login()
    tls = at.tls or Tls()
    return RedisSettings(
        host=[(one.host, one.port) for one in at.sentinels] or (at.nodes or (at,))[0].host,
        sentinel=bool(at.sentinels),
        sentinel_master=at.service or "mymaster",
        port=(at.nodes or (at,))[0].port,
        unix_socket_path=at.path or None,
        database=at.db,
        username=at.user or None,
        password=at.password or None,
        ssl=at.tls is not None,
        ssl_ca_certs=tls.ca_file,
        ssl_certfile=tls.cert_file,
        ssl_keyfile=tls.key_file,
        ssl_cert_reqs=tls.verify,
        ssl_check_hostname=tls.verify != "none",
    )
