"""Questions to a worker, which has the keys of models and the way to their providers."""

from __future__ import annotations

import asyncio
import time
from typing import Final

from shared.store import keys
from shared.store.client.redis_client import RedisClient
from shared.store.jobs.jobs import QUEUE, JobResult, Jobs

CLAIMED_WITHIN_S: Final = 0.5
_LOOK_S: Final = 0.05


async def ask_worker(client: RedisClient, function: str, *args: str, within_s: float) -> JobResult | None:
    """Have a worker run a job, and return its result; None when no worker takes it within
    CLAIMED_WITHIN_S, or none ends it within `within_s`. Raises RedisAway, Refused."""
    jobs = Jobs(client)
    id = await jobs.enqueue(function, *args)
    started = time.monotonic()
    claimed = False
    try:
        while (result := await jobs.result(id)) is None:
            claimed = claimed or await client.command("HEXISTS", keys.leases(QUEUE), id) == 1
            if time.monotonic() - started > (within_s if claimed else CLAIMED_WITHIN_S):
                return None
            await asyncio.sleep(_LOOK_S)
        return result
    finally:
        await jobs.forget(id)
