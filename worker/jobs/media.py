"""The end of stored files: those of a session that was forgotten, and all that are too old."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from shared.errors import TryLater
from shared.log import logger
from shared.media.store import MediaStore

AWAY_S: Final = 60.0

log = logger("jobs")


async def forget_media(context: dict[str, Any], folder: str) -> None:
    """Delete the files that a session, named by its folder, had when this was asked for. Raises TryLater while the
    volume is away."""
    media: MediaStore = context["deps"].media
    try:
        gone = await asyncio.to_thread(media.forget, folder, before_s=context["enqueue_time"].timestamp())
    except OSError as exc:
        raise TryLater("the volume of the files is away", AWAY_S) from exc
    log.info("files forgotten", files=gone)


async def expire_media(context: dict[str, Any]) -> None:
    """The cron job. The next hour makes up for one that fails."""
    media: MediaStore = context["deps"].media
    try:
        gone = await asyncio.to_thread(media.expire)
    except OSError as exc:
        log.warning("files not swept", error=type(exc).__name__)
        return
    if gone:
        log.info("files expired", files=gone)
