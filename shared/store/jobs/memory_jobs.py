"""The jobs that keep memory, by name: whoever may ask for one does it here, so that no two run at
once."""

from __future__ import annotations

from typing import Final

from shared.store.jobs.jobs import Jobs

KEEP_MS: Final = 7 * 86_400_000
"""How long a job waits for a worker, or for its model, before it is given up."""


class MemoryJobs:
    """Queues the jobs of `worker.jobs`. One that waits or runs already is not queued again: what it
    may have missed is found by the sweep. Every method raises RedisAway and Refused."""

    def __init__(self, jobs: Jobs) -> None:
        self._jobs = jobs

    async def consolidate(self, session: str) -> None:
        """Bring a conversation that has become long into memory, but for its newest entries."""
        await self._jobs.enqueue("consolidate", session, id=f"consolidate:{session}", keep_ms=KEEP_MS)

    async def idle(self, session: str) -> None:
        """The same with one that rests, but for its last few entries. Never runs beside
        `consolidate`."""
        await self._jobs.enqueue("idle", session, id=f"consolidate:{session}", keep_ms=KEEP_MS)

    async def archive(self, session: str) -> None:
        """Bring what `/new` ended into memory. It takes from a list of its own, and may run beside
        `consolidate`."""
        await self._jobs.enqueue("archive", session, id=f"archive:{session}", keep_ms=KEEP_MS)

    async def rework(self, scope: str) -> None:
        """Write a MEMORY.md anew."""
        await self._jobs.enqueue("rework", scope, id=f"rework:{scope}", keep_ms=KEEP_MS)
