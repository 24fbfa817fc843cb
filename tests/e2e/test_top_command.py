"""What an operator sees of real gateways and workers: nothing made up, all of it from what they say."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from shared.store.client.redis_client import RedisClient
from tests.gateway.harness import TOKENS, answers, free_port
from tests.gateway.harness import client as connect
from tests.helpers.fleet import workers
from tests.helpers.fleet_fixtures import Spawn
from tests.helpers.openai_server import Answer, ScriptedOpenAI
from tests.helpers.processes import ROOT
from tests.helpers.wait import eventually


async def seen(redis_url: str, folder: Path) -> dict[str, Any]:
    """One look, by the command itself."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "console", "top", "--json",
        cwd=folder, env={"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "SHOAL_REDIS__URL": redis_url},
        stdout=subprocess.PIPE,
    )  # fmt: skip
    out, _ = await process.communicate()
    found: dict[str, Any] = json.loads(out)
    return found


async def test_a_fleet_says_what_it_does(
    redis_url: str, client: RedisClient, spawn: Spawn, model: ScriptedOpenAI, tmp_path: Path
) -> None:
    """Messages, answers and their times, sockets, memory, the way to the model; and that the provider asks for a
    pause."""
    port = free_port()
    spawn("gateway", WEB__PORT=str(port), WEB__TOKENS__OWNER=TOKENS["owner"])
    worker = spawn("worker", MODEL__CLIENT="direct")
    model.script(
        Answer(match="again", status=429, retry_after="600", times=0),
        Answer(match="hello", text="hello to you", times=0),
    )
    address = f"127.0.0.1:{port}"
    await eventually(lambda: answers(address), within_s=60)
    await workers(client, 1, within_s=60)
    async with connect(address) as person:
        for number in range(3):
            id = (await person.say("a", f"hello {number}"))["id"]
            async with asyncio.timeout(60):
                while not any(id in frame.get("in_reply_to", ()) for frame in person.seen):
                    await person.next("reply", chat="a")

        async def reported() -> dict[str, Any]:
            found = await seen(redis_url, tmp_path)
            figures = found["figures"]
            assert [figures[name]["count"] for name in ("answer", "turn", "first_token")] == [3, 3, 3], figures
            by_kind = {one["kind"]: one for one in found["processes"]}
            assert by_kind["gateway"]["details"]["web.sockets"] == "1"
            return found

        found = await eventually(reported, within_s=60, every_s=0.5)
        assert found["figures"]["answer"]["p95_s"] > 0
        assert min(one["vitals"]["memory_bytes"] for one in found["processes"]) > 10e6
        [way] = found["models"]
        assert (way["models"], way["state"]) == (["openai/scripted"], "open")
        assert not {"model_closed", "late", "no_worker", "no_gateway"} & {one["code"] for one in found["problems"]}

        await person.say("b", "hello again")

        async def closed() -> dict[str, Any]:
            found = await seen(redis_url, tmp_path)
            assert found["models"][0]["state"] == "closed"
            return found

        found = await eventually(closed, within_s=60, every_s=0.5)
        assert "model_closed" in {one["code"] for one in found["problems"]}
        assert found["models"][0]["why"] == "rate_limit"
    worker.terminate()
    assert await asyncio.to_thread(worker.wait, 60) == 0
