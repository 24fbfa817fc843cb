"""Gauges of Redis, the queues, the fleet and volumes: each process exports them, worker or not."""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections import Counter
from collections.abc import Iterable
from typing import Final

from shared import metrics
from shared.clock import SYSTEM_CLOCK, Clock
from shared.errors import RedisAway, ReplyError
from shared.log import logger
from shared.process.volume_gauges import VolumeGauges
from shared.store import keys
from shared.store.client.redis_client import RedisClient
from shared.store.delivery.outbox import read_outboxes
from shared.store.fleet.presence import list_processes, read_queue
from shared.store.fleet.provider_limits import count_model_waits
from shared.store.fleet.redis_server import read_broken_keys, read_fsync, read_health, read_restart_safe

QUEUES: Final = ("turns", keys.BACKGROUND, "jobs")
KINDS: Final = ("gateway", "worker")
CACHED_S: Final = 1.0
SETTINGS_EVERY_S: Final = 60.0
ASK_AGAIN_S: Final = 5.0
LOSS_WINDOW_S: Final = {"always": 0.0, "everysec": 1.0, "no": math.inf}
"""Seconds of confirmed writes that a server may lose, by its `appendfsync`."""

log = logger("redis")


class FleetGauges:
    """Fills the gauges about Redis and `volumes` on demand, at most once a second."""

    def __init__(
        self, client: RedisClient, *, clock: Clock = SYSTEM_CLOCK, volumes: VolumeGauges | None = None
    ) -> None:
        self._client = client
        self._volumes = volumes
        self._clock = clock
        self._read_at = self._settings_at = -math.inf
        self._fsync: str | None = None
        self._broken: list[str] = []
        self._restart_safe: bool | None = None

    async def refresh(self) -> None:
        """Read again if the last reading is older than a second. While Redis is unavailable the
        last reading stays, and `shoal_redis_up` is 0. So does what stands on a broken key."""
        now = self._clock.monotonic()
        if now - self._read_at < CACHED_S:
            return
        self._read_at = now
        if self._volumes is not None:
            await self._volumes.refresh()
        try:
            for fill in (self._fill_broken, self._fill_queues, self._fill_outboxes, self._fill_processes):
                with contextlib.suppress(ReplyError):
                    await fill()
            await self._fill_server()
            metrics.REDIS_UP.set(1)
        except RedisAway:
            metrics.REDIS_UP.set(0)

    async def _fill_broken(self) -> None:
        broken = await read_broken_keys(self._client)
        if broken and broken != self._broken:
            log.error("keys broken", keys=", ".join(broken), fix="the runbook's ShoalKeyBroken")
        self._broken = broken
        metrics.REDIS_KEYS_BROKEN.set(len(broken))

    async def _fill_queues(self) -> None:
        for name in QUEUES:
            reading = await read_queue(self._client, name)
            metrics.QUEUE_DUE.labels(name).set(reading.due)
            metrics.QUEUE_RUNNING.labels(name).set(reading.running)
            metrics.QUEUE_OLDEST_DUE_SECONDS.labels(name).set(reading.oldest_due_s)
        metrics.TURNS_WAIT_FOR_MODEL.set(await count_model_waits(self._client))

    async def _fill_outboxes(self) -> None:
        for outbox in await read_outboxes(self._client):
            metrics.OUTBOX_WAITING.labels(outbox.channel).set(outbox.waiting)
            metrics.OUTBOX_OLDEST_SECONDS.labels(outbox.channel).set(outbox.oldest_s)

    async def _fill_processes(self) -> None:
        alive = await list_processes(self._client)
        for kind in KINDS:
            metrics.PROCESSES.labels(kind).set(sum(one.kind == kind for one in alive))
        _fill_places("turns", [(one.host, one.slots) for one in alive if not one.draining])
        _fill_places("jobs", [(one.host, one.job_slots) for one in alive if not one.draining])

    async def _fill_server(self) -> None:
        pulse = await read_health(self._client)
        metrics.REDIS_MEMORY_BYTES.set(_nan_if_unknown(pulse.used_bytes))
        metrics.REDIS_MEMORY_LIMIT_BYTES.set(_nan_if_unknown(pulse.limit_bytes))
        metrics.REDIS_WRITES_OK.set(_nan_if_unknown(pulse.writes_ok))
        metrics.REDIS_AOF_BYTES.set(_nan_if_unknown(pulse.aof_bytes))
        metrics.REDIS_AOF_BUSY_SECONDS.set(_nan_if_unknown(pulse.aof_busy_s))
        metrics.REDIS_CLOCK_AHEAD_SECONDS.set(pulse.clock_ahead_s)
        await self._read_settings()
        window_s = math.inf if pulse.append_only is False else LOSS_WINDOW_S.get(self._fsync or "")
        metrics.REDIS_LOSS_WINDOW_SECONDS.set(_nan_if_unknown(window_s))
        metrics.REDIS_RESTART_SAFE.set(_nan_if_unknown(self._restart_safe if pulse.append_only else None))

    async def _read_settings(self) -> None:
        """Read the server's settings again if the last reading is older than a minute. One that it
        refused is not read again: the server's log of refusals should show intruders only."""
        now = self._clock.monotonic()
        first = self._settings_at == -math.inf
        if now - self._settings_at < SETTINGS_EVERY_S:
            return
        if first or self._fsync is not None:
            self._fsync = await read_fsync(self._client)
        if first or self._restart_safe is not None:
            self._restart_safe = await read_restart_safe(self._client)
        self._settings_at = now


async def warn_of_restart(client: RedisClient) -> None:
    """Log once, when Redis can be asked, whether its next restart may forget nearly everything."""
    while True:
        with contextlib.suppress(RedisAway):
            if (await read_health(client)).append_only and await read_restart_safe(client) is False:
                log.error("redis restart forgets", fix="install redis/users.acl of this release, then ACL LOAD")
            return
        await asyncio.sleep(ASK_AGAIN_S)


def _fill_places(queue: str, slots: Iterable[tuple[str, int]]) -> None:
    """Set the gauges of places from the host and the slots of each process. Processes of one worker
    share its host. Without any worker the size of the last ones stays: autoscaling divides by
    it."""
    hosts = Counter[str]()
    for host, places in slots:
        hosts[host] += places
    metrics.PLACES.labels(queue).set(hosts.total())
    if largest := max(hosts.values(), default=0):
        metrics.WORKER_PLACES.labels(queue).set(largest)


def _nan_if_unknown(value: float | None) -> float:
    return math.nan if value is None else value
