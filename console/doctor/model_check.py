"""The check of `shoal doctor` that asks the model one question, and says what came."""

from __future__ import annotations

from typing import Final

from console.doctor.check import Check, failed, ok
from console.top.fleet_snapshot import FleetSnapshot
from console.top.problems import serves
from shared.settings import ModelSettings
from shared.store.client.redis_client import RedisClient
from shared.store.jobs.jobs import QUEUE
from shared.store.jobs.questions import ask_worker
from worker.llm.question import WITHIN_S, try_model

NAME: Final = "model answers"


async def model_check(client: RedisClient, found: FleetSnapshot, settings: ModelSettings) -> Check:
    """Ask by a worker, which has the key and the way to the provider; where none runs, from
    here."""
    if not any(serves(one, QUEUE) and not one.draining for one in found.of("worker")):
        return _check(await try_model(settings))
    result = await ask_worker(client, "ask_model", within_s=WITHIN_S + 5)
    if result is None or not result.success:
        why = "no worker took the question in time" if result is None else "the workers are of an older release"
        return Check(NAME, "skipped", why)
    answered, text = result.result
    return _check((answered, text))


def _check(came: tuple[bool, str]) -> Check:
    answered, text = came
    return ok(NAME, text) if answered else failed(NAME, text)
