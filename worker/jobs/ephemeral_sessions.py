"""Clean-up of ephemeral sessions (one request over HTTP each). Any worker does it, once a
minute."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from shared.clock import SYSTEM_CLOCK
from shared.errors import RedisAway, Refused, ToolFailed
from shared.ids import folder_name
from shared.log import logger
from shared.media.store import MediaStore
from shared.store.client.redis_client import RedisClient
from shared.store.schedules.agenda import AgendaEntry
from shared.store.sessions.ephemeral import EphemeralSessions
from worker.guards.workspace import Workspaces

AGAIN_MS: Final = 10 * 60_000
BATCH: Final = 100
BATCHES: Final = 200

log = logger("jobs")


class EphemeralSweep:
    """Ends ephemeral sessions and deletes their files.

    The gateway that answered ended most of them; only their files are left. The others lost their
    gateway, or their answer was not fetched within a day.
    """

    def __init__(self, client: RedisClient, media: MediaStore, workspaces: Workspaces) -> None:
        self._ephemeral = EphemeralSessions(client)
        self._media = media
        self._workspaces = workspaces

    async def run_once(self) -> int:
        """Sweep once. Return how many sessions were removed. Raises RedisAway."""
        gone = 0
        for _ in range(BATCHES):
            found = await self._ephemeral.agenda.due(BATCH)
            for due in found:
                gone += await self._end_session(due)
            if len(found) < BATCH:
                break
        return gone

    async def _end_session(self, due: AgendaEntry) -> bool:
        await self._ephemeral.erase(due.member)
        folder, before_s = folder_name(due.member), SYSTEM_CLOCK.now_ms() / 1000
        try:
            await asyncio.to_thread(self._media.forget, folder, before_s=before_s)
            await self._workspaces.erase_session(folder, before_s=before_s)
        except (OSError, ToolFailed) as exc:
            log.warning("files not forgotten yet", error=type(exc).__name__)
            await self._ephemeral.agenda.put_off(due, AGAIN_MS)
            return False
        return await self._ephemeral.agenda.remove(due)


async def sweep_ephemeral_sessions(context: dict[str, Any]) -> None:
    """Run the sweep as a cron job. The next minute makes up for a failed one."""
    deps = context["deps"]
    made = EphemeralSweep(deps.client, deps.media, deps.workspaces)
    try:
        if gone := await made.run_once():
            log.info("ephemeral sessions ended", sessions=gone)
    except (RedisAway, Refused) as exc:
        log.warning("sweep put off", reason=type(exc).__name__)
