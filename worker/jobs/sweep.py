"""The sweep of a minute: conversations and memories that are due, and leftovers of crashes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

from shared.errors import RedisAway, Refused
from shared.log import logger
from shared.settings import MemorySettings
from shared.store.jobs.background_jobs import MemoryJobs
from shared.store.schedules.agenda import Agenda, AgendaEntry
from shared.store.sessions.memory import MemoryStore
from shared.store.subagents.subagents import Subagents

AGAIN_MS: Final = 10 * 60_000
BATCH: Final = 100
BATCHES: Final = 20

log = logger("jobs")


class MemorySweep:
    """Queues a job for each due member of the two agendas. Any worker may run it.

    A member is put off first and queued then: if the process ends in between, it is found again.
    The job removes it from the agenda when its work is done; the sweep does when nothing is left to
    do. Two sweeps at once do no harm.
    """

    def __init__(
        self, memory: MemoryStore, jobs: MemoryJobs, settings: MemorySettings, children: Subagents | None = None
    ) -> None:
        self._memory = memory
        self._jobs = jobs
        self._settings = settings
        self._children = children

    async def run_once(self) -> None:
        """Sweep once. Raises RedisAway, Refused."""
        if self._children is not None and (back := await self._children.requeue_lost()):
            log.warning("subagents put back", subagents=back)
        await self._sweep_agenda(self._memory.idle, self._queue_conversation)
        await self._sweep_agenda(self._memory.rework, self._queue_rework)

    async def _sweep_agenda(self, agenda: Agenda, queue_jobs: Callable[[AgendaEntry], Awaitable[bool]]) -> None:
        for _ in range(BATCHES):
            found = await agenda.due(BATCH)
            for due in found:
                if await queue_jobs(due):
                    continue
                await agenda.remove(due)
            if len(found) < BATCH:
                return

    async def _queue_conversation(self, due: AgendaEntry) -> bool:
        """Queue the jobs of a conversation. Return False when there is nothing to do."""
        waiting = await self._memory.count_unconsolidated(due.member)
        rests = self._settings.idle_s > 0 and waiting.history > self._settings.idle_keep
        if not (rests or waiting.archive):
            return False
        if await self._memory.idle.put_off(due, AGAIN_MS):
            if waiting.archive:
                await self._jobs.archive(due.member)
            if rests:
                await self._jobs.idle(due.member)
        return True

    async def _queue_rework(self, due: AgendaEntry) -> bool:
        if self._settings.rework_h <= 0:
            return False
        if await self._memory.rework.put_off(due, AGAIN_MS):
            await self._jobs.rework(due.member)
        return True


async def sweep(context: dict[str, Any]) -> None:
    """Run the sweep as a cron job. `context["deps"]` has `sweep`. The next minute makes up for a
    failed one."""
    made: MemorySweep = context["deps"].sweep
    try:
        await made.run_once()
    except (RedisAway, Refused) as exc:
        log.warning("sweep put off", reason=type(exc).__name__)
