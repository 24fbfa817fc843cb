"""Plain jobs for the workers' `jobs` queue, in arq's own format, for callers that run without arq.

Source of the format: `arq.jobs.serialize_job` and `deserialize_result` of arq 0.28; a test
compares them.
"""

from __future__ import annotations

import secrets
import time
from typing import Any, Final

import msgspec

from shared.store import keys
from shared.store.client.redis_client import RedisClient

JOB_PREFIX: Final = "arq:job:"
RESULT_PREFIX: Final = "arq:result:"
QUEUE: Final = "jobs"
EXPIRES_MS: Final = 60_000


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
        is not queued again.

        A job that no worker claimed within `keep_ms` fails when one does. Raises RedisAway,
        Refused.
        """
        id = id or secrets.token_hex(16)
        record = msgspec.msgpack.encode(
            {"t": None, "f": function, "a": args, "k": {}, "et": time.time_ns() // 1_000_000}
        )
        await self._client.run(
            "jobs/enqueue", [keys.queue(QUEUE), keys.wake(QUEUE), f"{JOB_PREFIX}{id}"], [id, record, keep_ms]
        )
        return id

    async def result(self, id: str) -> JobResult | None:
        """Read the result of a job; None until it has ended."""
        data = await self._client.command("GET", f"{RESULT_PREFIX}{id}")
        return None if data is None else msgspec.msgpack.decode(data, type=JobResult)

    async def forget(self, id: str) -> None:
        """Remove a job that no worker has claimed yet, and delete its result."""
        await self._client.pipeline(
            [("ZREM", keys.queue(QUEUE), id), ("DEL", f"{JOB_PREFIX}{id}", f"{RESULT_PREFIX}{id}")]
        )
