"""Plain jobs for the workers' `jobs` queue, in arq's own format, for callers that run without arq.
Source of the format: `arq.jobs.serialize_job` and `deserialize_result` of arq 0.28; a test compares
them. Callers queue background jobs by name, so that none is queued a second time."""

from __future__ import annotations

import secrets
import time
from typing import Any, Final

import msgspec

from shared.ids import folder_name
from shared.store import keys
from shared.store.client.redis_client import RedisClient

JOB: Final = "job:"
RESULT: Final = "result:"
RETRY: Final = "retry:"
"""Kinds of arq's keys, after `RedisClient.arq`."""

QUEUE: Final = "jobs"
EXPIRES_MS: Final = 60_000
KEEP_MS: Final = 7 * 86_400_000
"""Time for which a job waits for a worker, or for its model, before it is dropped."""


class JobResult(msgspec.Struct, frozen=True):
    """Result of a job: its return value, or the text of its error."""

    success: bool = msgspec.field(name="s")
    result: Any = msgspec.field(name="r")


class Jobs:
    """A client that queues jobs and reads their results."""

    def __init__(self, client: RedisClient) -> None:
        self._client = client

    async def enqueue(self, function: str, *args: str, id: str | None = None, keep_ms: int = EXPIRES_MS) -> str:
        """Queue a call, due at once, and return its id. A job whose `id` is queued or runs already
        is not queued again. A job that nobody claims within `keep_ms` fails. Raises RedisAway,
        Refused."""
        id = id or secrets.token_hex(16)
        now_ms = time.time_ns() // 1_000_000
        job: dict[str, Any] = {"t": None, "f": function, "a": args, "k": {}, "et": now_ms}
        record = msgspec.msgpack.encode(job)
        name = f"{self._client.arq}{JOB}{id}"
        await self._client.run("jobs/enqueue", queue=QUEUE, job=name, id=id, record=record, keep_ms=keep_ms)
        return id

    async def result(self, id: str) -> JobResult | None:
        """Read the result of a job; None until it has ended."""
        data = await self._client.command("GET", f"{self._client.arq}{RESULT}{id}")
        return None if data is None else msgspec.msgpack.decode(data, type=JobResult)

    async def forget(self, id: str) -> None:
        """Remove a job that no worker has claimed yet, and delete its result."""
        names = (f"{self._client.arq}{kind}{id}" for kind in (JOB, RESULT))
        await self._client.pipeline([("ZREM", keys.queue(QUEUE), id), ("DEL", *names)])


class SessionJobs:
    """Queues the jobs of `worker.jobs` that follow a turn: memory and titles. A job that waits or runs is not queued
    again; the sweep finds what it may have missed. Every method raises RedisAway and Refused."""

    def __init__(self, jobs: Jobs) -> None:
        self._jobs = jobs

    async def consolidate(self, session: str) -> None:
        """Consolidate a conversation that has become long, except its newest entries."""
        await self._queue("consolidate", session)

    async def idle(self, session: str) -> None:
        """Consolidate an idle conversation, except its last few entries."""
        # The same id as `consolidate`: the two never run at the same time.
        await self._queue("idle", session, "consolidate")

    async def archive(self, session: str) -> None:
        """Consolidate what `/new` ended; it may run together with `consolidate`."""
        await self._queue("archive", session)

    async def rework(self, scope: str) -> None:
        """Rewrite a MEMORY.md."""
        await self._queue("rework", scope)

    async def title(self, session: str) -> None:
        """Give a chat a title in place of its first words."""
        await self._queue("title", session)

    async def _queue(self, function: str, subject: str, name: str = "") -> None:
        await self._jobs.enqueue(function, subject, id=f"{name or function}:{subject}", keep_ms=KEEP_MS)


async def forget_media(client: RedisClient, session: str) -> None:
    """Queue the deletion of every file that a session has by now, sent or in its workspace; a
    worker does it, because it has the volumes. Raises RedisAway, Refused."""
    # The job names only the folder: the session itself may not be mentioned once it is gone.
    folder = folder_name(session)
    id = f"media:{folder}:{secrets.token_hex(4)}"
    await Jobs(client).enqueue("forget_media", folder, id=id, keep_ms=KEEP_MS)
