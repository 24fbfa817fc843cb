"""The sweeps: conversations and memories that are due, leftovers of crashes, ephemeral sessions
(one request over HTTP each), and stored files. Any worker runs them. `context["deps"]` of a job has
`media` (MediaStore) and `workspaces` (Workspaces)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any, Final

from shared.errors import RedisAway, Refused, ToolFailed, TryLater
from shared.ids import folder_name, is_ephemeral
from shared.log import logger
from shared.media.store import MediaStore
from shared.settings import MemorySettings
from shared.store.client.redis_client import RedisClient
from shared.store.jobs.jobs import SessionJobs
from shared.store.schedules.agenda import Agenda, AgendaEntry
from shared.store.sessions.erase import EphemeralSessions, erase_deleted_chat
from shared.store.sessions.memory import MemoryStore
from shared.store.subagents.subagents import Subagents
from worker.guards.workspace import Workspaces
from worker.jobs.memory import wait_after

AGAIN_MS: Final = 10 * 60_000
BATCH: Final = 100
MEMORY_BATCHES: Final = 20
EPHEMERAL_BATCHES: Final = 200

log = logger("jobs")


@dataclass(eq=False)
class MemorySweep:
    """Queues a job for each due member of the two agendas. A member is put off first and queued
    then: if the process ends in between, it is found again. The job removes it from the agenda when
    its work is done; the sweep does when nothing is left to do. Two sweeps at once do no harm."""

    memory: MemoryStore
    jobs: SessionJobs
    settings: MemorySettings
    children: Subagents | None = None

    async def run_once(self) -> None:
        """Sweep once. Raises RedisAway, Refused."""
        if self.children is not None and (back := await self.children.requeue_lost()):
            log.warning("subagents put back", subagents=back)
        async for due in _due_entries(self.memory.idle, MEMORY_BATCHES):
            if not await self._queue_conversation(due):
                await self.memory.idle.remove(due)
        async for due in _due_entries(self.memory.rework, MEMORY_BATCHES):
            if self.settings.rework_h <= 0 and not self.settings.dream:
                await self.memory.rework.remove(due)
            elif await self.memory.rework.put_off(due, AGAIN_MS):
                await self.jobs.rework(due.member)

    async def _queue_conversation(self, due: AgendaEntry) -> bool:
        """Queue the jobs of a conversation. Return False when there is nothing to do."""
        waiting = await self.memory.count_unconsolidated(due.member)
        rests = self.settings.idle_s > 0 and waiting.history > self.settings.idle_keep
        if not (rests or waiting.archive):
            return False
        if await self.memory.idle.put_off(due, AGAIN_MS):
            if waiting.archive:
                await self.jobs.archive(due.member)
            if rests:
                await self.jobs.idle(due.member)
        return True


class EphemeralSweep:
    """Ends ephemeral sessions and deletes their files, and erases chats that their person deleted.
    The gateway that answered ended most ephemeral sessions; only their files are left. The others
    lost their gateway, or their answer was not fetched within a day."""

    def __init__(self, client: RedisClient, media: MediaStore, workspaces: Workspaces) -> None:
        self._client = client
        self._ephemeral = EphemeralSessions(client)
        self._media = media
        self._workspaces = workspaces

    async def run_once(self) -> int:
        """Sweep once. Return how many sessions were removed. Raises RedisAway."""
        agenda = self._ephemeral.agenda
        gone = 0
        async for due in _due_entries(agenda, EPHEMERAL_BATCHES):
            if not is_ephemeral(due.member):
                gone += await erase_deleted_chat(self._client, due)
                # A deletion of meanwhile is due later.
                await agenda.remove(due)
                continue
            await self._ephemeral.erase(due.member)
            folder, before_s = folder_name(due.member), time.time()  # as the disk has it
            try:
                await asyncio.to_thread(self._media.forget, folder, before_s=before_s)
                await self._workspaces.erase_session(folder, before_s=before_s)
            except (OSError, ToolFailed) as exc:
                log.warning("files not forgotten yet", error=type(exc).__name__)
                await agenda.put_off(due, AGAIN_MS)
            else:
                gone += await agenda.remove(due)
        return gone


async def _due_entries(agenda: Agenda, batches: int) -> AsyncIterator[AgendaEntry]:
    for _ in range(batches):
        found = await agenda.due(BATCH)
        for due in found:
            yield due
        if len(found) < BATCH:
            return


async def sweep(context: dict[str, Any]) -> None:
    """Sweep memories as a cron job. The next minute makes up for a failed one."""
    made: MemorySweep = context["deps"].sweep
    try:
        await made.run_once()
    except (RedisAway, Refused) as exc:
        log.warning("sweep put off", reason=type(exc).__name__)


async def sweep_ephemeral_sessions(context: dict[str, Any]) -> None:
    """Sweep ephemeral sessions as a cron job. The next minute makes up for a failed one."""
    deps = context["deps"]
    try:
        if gone := await EphemeralSweep(deps.client, deps.media, deps.workspaces).run_once():
            log.info("ephemeral sessions ended", sessions=gone)
    except (RedisAway, Refused) as exc:
        log.warning("sweep put off", reason=type(exc).__name__)


async def forget_media(context: dict[str, Any], folder: str) -> None:
    """Delete the files that a session, named by its folder, had when this job was queued: those
    that were sent, and those in its workspace. Raises TryLater while a volume is unavailable; the
    other one does not wait for it."""
    deps = context["deps"]
    before_s = context["enqueue_time"].timestamp()
    unavailable: list[str] = []
    sent = kept = 0
    try:
        sent = await asyncio.to_thread(deps.media.forget, folder, before_s=before_s)
    except OSError as exc:
        unavailable.append(f"media ({type(exc).__name__})")
    try:
        kept = await deps.workspaces.erase_session(folder, before_s=before_s)
    except (OSError, ToolFailed) as exc:
        unavailable.append(f"workspace ({type(exc).__name__})")
    if sent or kept or not unavailable:
        log.info("files forgotten", files=sent, workspace=kept)
    if unavailable:
        wait_s = wait_after(context["job_try"])
        log.warning("files not forgotten yet", away=unavailable, wait_s=round(wait_s))
        raise TryLater("a volume is away", wait_s)


async def expire_media(context: dict[str, Any]) -> None:
    """Delete old files, and files that no message named; correct what people use of both volumes. A
    cron job: the next hour makes up for a failed one."""
    deps = context["deps"]
    try:
        if gone := await asyncio.to_thread(deps.media.expire):
            log.info("files expired", files=gone)
        await asyncio.to_thread(deps.workspaces.sweep_usage)
    except OSError as exc:
        log.warning("files not swept", error=type(exc).__name__)
