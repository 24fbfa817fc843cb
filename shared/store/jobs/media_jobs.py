"""The files of a session go when it is forgotten: a job for a worker, which has the volumes that
they lie on."""

from __future__ import annotations

import secrets
from typing import Final

from shared.media.store import folder_name
from shared.store.client.redis_client import RedisClient
from shared.store.jobs.jobs import Jobs

KEEP_MS: Final = 7 * 86_400_000


async def forget_media(client: RedisClient, session: str) -> None:
    """Ask for the end of every file that a session has by now, sent or in its workspace. Raises
    RedisAway, Refused."""
    folder = folder_name(session)  # on both volumes; nothing else of the session is named, for it may be gone for good
    await Jobs(client).enqueue("forget_media", folder, id=f"media:{folder}:{secrets.token_hex(4)}", keep_ms=KEEP_MS)
