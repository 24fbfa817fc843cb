"""Background jobs by name. Callers queue them through this module, so that a job that waits or runs
is never queued a second time."""

from __future__ import annotations

import secrets
from typing import Final

from shared.ids import folder_name
from shared.store.client.redis_client import RedisClient
from shared.store.jobs.jobs import Jobs

KEEP_MS: Final = 7 * 86_400_000
"""Time for which a job waits for a worker, or for its model, before it is dropped."""


class MemoryJobs:
    """Queues the jobs of `worker.jobs` that keep memory. A job that waits or runs is not queued
    again; the sweep finds what it may have missed. Every method raises RedisAway and Refused."""

    def __init__(self, jobs: Jobs) -> None:
        self._jobs = jobs

    async def consolidate(self, session: str) -> None:
        """Consolidate a conversation that has become long, except its newest entries."""
        await self._jobs.enqueue("consolidate", session, id=f"consolidate:{session}", keep_ms=KEEP_MS)

    async def idle(self, session: str) -> None:
        """Consolidate an idle conversation, except its last few entries."""
        # The same id as `consolidate`: the two never run at the same time.
        await self._jobs.enqueue("idle", session, id=f"consolidate:{session}", keep_ms=KEEP_MS)

    async def archive(self, session: str) -> None:
        """Consolidate what `/new` ended. It reads a list of its own, so it may run together with
        `consolidate`."""
        await self._jobs.enqueue("archive", session, id=f"archive:{session}", keep_ms=KEEP_MS)

    async def rework(self, scope: str) -> None:
        """Rewrite a MEMORY.md."""
        await self._jobs.enqueue("rework", scope, id=f"rework:{scope}", keep_ms=KEEP_MS)


async def forget_media(client: RedisClient, session: str) -> None:
    """Queue the deletion of every file that a session has by now, sent or in its workspace; a
    worker does it, because it has the volumes. Raises RedisAway, Refused."""
    # The job names only the folder: the session itself may not be mentioned anywhere once it is
    # gone.
    folder = folder_name(session)
    await Jobs(client).enqueue("forget_media", folder, id=f"media:{folder}:{secrets.token_hex(4)}", keep_ms=KEEP_MS)
