"""The sweep of long logs: their oldest lines go to compressed pages. Any worker runs it."""

from __future__ import annotations

from typing import Any, Final

from shared.errors import RedisAway, Refused
from shared.ids import log_id
from shared.log import logger
from shared.settings import WebSettings
from shared.store import keys
from shared.store.client.redis_client import RedisClient
from shared.store.schedules.agenda import Agenda
from shared.store.sessions.log_pages import LogPages
from shared.store.turns.inbox import DAY_MS

BATCH: Final = 100

log = logger("jobs")


class LogSweep:
    """Moves the oldest lines of logs that got long to their pages. Two sweeps at once do no
    harm."""

    def __init__(self, client: RedisClient, settings: WebSettings) -> None:
        self._agenda = Agenda(client, keys.PAGING)
        self._pages = LogPages(client)
        self._settings = settings

    async def run_once(self) -> int:
        """Sweep once. Return how many lines were moved. Raises RedisAway."""
        moved = 0
        cap = self._settings.log_bytes
        keep_ms = self._settings.log_days * DAY_MS
        for due in await self._agenda.due(BATCH):
            try:
                moved += await self._pages.page_out(due.member, cap_bytes=cap, keep_ms=keep_ms)
            except Refused as exc:
                # One broken chat does not hold up the others; its next lines bring it back.
                log.warning("log not paged", session=log_id(due.member), reason=exc.code)
            await self._agenda.remove(due)
        return moved


async def sweep_logs(context: dict[str, Any]) -> None:
    """Sweep long logs as a cron job. The next minute makes up for a failed one."""
    sweep: LogSweep = context["deps"].log_sweep
    try:
        if moved := await sweep.run_once():
            log.info("lines moved to pages", lines=moved)
    except RedisAway as exc:
        log.warning("sweep put off", reason=type(exc).__name__)
