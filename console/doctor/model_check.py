"""The check of `shoal doctor` that asks the model one question, and says what came."""

from __future__ import annotations

import asyncio
import time
from typing import Final

from console.doctor.check import Check, failed, ok
from console.top.fleet_snapshot import FleetSnapshot
from console.top.problems import serves
from shared.settings import ModelSettings
from shared.store import keys
from shared.store.client.redis_client import RedisClient
from shared.store.jobs.jobs import QUEUE, JobResult, Jobs
from worker.llm.question import WITHIN_S, try_model

NAME: Final = "model answers"
CLAIMED_WITHIN_S: Final = 0.5
_LOOK_S: Final = 0.05


async def model_check(client: RedisClient, found: FleetSnapshot, settings: ModelSettings) -> Check:
    """Ask by a worker, which has the key and the way to the provider; where none runs, from
    here."""
    if not any(serves(one, QUEUE) and not one.draining for one in found.of("worker")):
        return _check(await try_model(settings))
    result = await _asked_by_a_worker(Jobs(client), client)
    if result is None or not result.success:
        why = "no worker took the question in time" if result is None else "the workers are of an older release"
        return Check(NAME, "skipped", why)
    answered, text = result.result
    return _check((answered, text))


def _check(came: tuple[bool, str]) -> Check:
    answered, text = came
    return ok(NAME, text) if answered else failed(NAME, text)


async def _asked_by_a_worker(jobs: Jobs, client: RedisClient) -> JobResult | None:
    id = await jobs.enqueue("ask_model")
    started = time.monotonic()
    claimed = False
    try:
        while (result := await jobs.result(id)) is None:
            claimed = claimed or await client.command("HEXISTS", keys.leases(QUEUE), id) == 1
            if time.monotonic() - started > (WITHIN_S + 5 if claimed else CLAIMED_WITHIN_S):
                return None
            await asyncio.sleep(_LOOK_S)
        return result
    finally:
        await jobs.forget(id)
