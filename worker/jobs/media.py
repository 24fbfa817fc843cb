"""Deletion of stored files: of a session that was forgotten, with its workspace, and of old ones.

`context["deps"]` has `media` (MediaStore) and `workspaces` (Workspaces)."""

from __future__ import annotations

import asyncio
from typing import Any

from shared.errors import ToolFailed, TryLater
from shared.log import logger
from worker.jobs.retry_later import wait_after

log = logger("jobs")


async def forget_media(context: dict[str, Any], folder: str) -> None:
    """Delete the files that a session, named by its folder, had when this job was queued: those
    that were sent, and those in its workspace. Raises TryLater while a volume is unavailable; the
    other one does not wait for it."""
    deps, before_s = context["deps"], context["enqueue_time"].timestamp()
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
    """Delete old files, as a cron job. The next hour makes up for a failed one."""
    try:
        if gone := await asyncio.to_thread(context["deps"].media.expire):
            log.info("files expired", files=gone)
    except OSError as exc:
        log.warning("files not swept", error=type(exc).__name__)
