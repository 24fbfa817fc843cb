"""A full disk under the log: every line fails, and nothing ends because of it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from shared.store.client.redis_client import RedisClient
from shared.store.fleet.presence import list_processes
from shared.store.turns.inbox import Inbox
from tests.helpers.build import say
from tests.helpers.fleet import holder, replies, workers
from tests.helpers.fleet_fixtures import Spawn
from tests.helpers.openai_server import Answer, ScriptedOpenAI
from tests.helpers.wait import eventually

SESSION = "web:owner/a"
BUFFERED = {"PYTHONUNBUFFERED": ""}
"""As a service manager starts it: Python would try what it could not write again when the process exits."""


@pytest.mark.parametrize("format", ["json", "console"])
async def test_a_worker_is_replaced_and_drains_while_the_disk_of_its_log_is_full(
    client: RedisClient, spawn: Spawn, model: ScriptedOpenAI, tmp_path: Path, format: str
) -> None:
    """The guardian cannot say that its worker died, and starts another one all the same; drained, both say that all
    went well."""
    model.script(Answer(match="slow", text="slow answer", first_s=30, times=1), Answer(match="", text="yes", times=0))
    (tmp_path / "worker-0.log").symlink_to("/dev/full")
    guardian = spawn("worker", env=BUFFERED, MODEL__CLIENT="direct", LOG__FORMAT=format)
    await workers(client, 1)
    await say(Inbox(client), "slow")
    await eventually(lambda: model.stats()["requests"], within_s=60, what="a call of the model")
    (await holder(client, SESSION)).kill()
    await eventually(lambda: replies(client, SESSION), within_s=30, what="an answer of the next worker")
    assert guardian.alive
    guardian.terminate()
    assert await asyncio.to_thread(guardian.wait, 60) == 0


async def test_a_gateway_ends_well_while_the_disk_of_its_log_is_full(
    client: RedisClient, spawn: Spawn, tmp_path: Path
) -> None:
    """Its exit code is that of its work."""
    (tmp_path / "gateway-0.log").symlink_to("/dev/full")
    gateway = spawn("gateway", env=BUFFERED, WEB__PORT="0", WEB__TOKEN="secret-of-the-owner")
    await eventually(lambda: list_processes(client), within_s=60)
    gateway.terminate()
    assert await asyncio.to_thread(gateway.wait, 60) == 0
