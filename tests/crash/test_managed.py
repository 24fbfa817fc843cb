"""A server as managed services have it: commands are missing, and the password changes while the fleet is at work."""

from __future__ import annotations

import asyncio
import contextlib
import json
from pathlib import Path

import pytest

from shared.process.resp import RespConnection
from shared.store.client.redis_client import RedisClient
from shared.store.turns.inbox import Inbox
from tests.deploy.test_acl import shoal
from tests.gateway.harness import TOKENS, answers, client, free_port
from tests.helpers.build import say
from tests.helpers.fleet import replies
from tests.helpers.fleet import workers as present_workers
from tests.helpers.need import need
from tests.helpers.processes import Process
from tests.helpers.redis_server import started
from tests.helpers.wait import eventually

FORBIDDEN = ("CONFIG", "MONITOR", "ACL", "DEBUG", "CLIENT")


@pytest.mark.timeout(180)
async def test_a_fleet_needs_no_forbidden_command_and_follows_a_password(tmp_path: Path) -> None:
    """Every connection that is made after the change has the new password; the file is all that is changed."""
    need("redis-server")
    port, web = free_port(), free_port()
    (tmp_path / "password").write_text("first")
    renamed = [word for name in FORBIDDEN for word in ("--rename-command", name, f"operators-{name}")]
    command = ["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--save", "", *renamed]
    server = started([*command, "--requirepass", "first"], tmp_path, f"redis://:first@127.0.0.1:{port}")
    env = {
        "SHOAL_REDIS__URL": f"redis://127.0.0.1:{port}/0",
        "SHOAL_REDIS__PASSWORD_FILE": str(tmp_path / "password"),
        "SHOAL_DATA__DIR": str(tmp_path),
        "SHOAL_WEB__PORT": str(web),
        "SHOAL_WEB__TOKENS__OWNER": TOKENS["owner"],
    }
    fleet = [Process(kind, env=env, log=tmp_path / f"{kind}.log") for kind in ("gateway", "worker")]
    ours = RedisClient(f"redis://127.0.0.1:{port}/0?password_file={tmp_path / 'password'}")
    try:
        await eventually(lambda: answers(f"127.0.0.1:{web}"), within_s=60)
        await present_workers(ours, 1, within_s=60)
        await say(Inbox(ours), "What is 6*7?")
        assert await eventually(lambda: replies(ours, "web:owner/a"), within_s=30)
        assert "answers in" in (await shoal("status", env=env))[1]
        doctor = json.loads((await shoal("doctor", "--json", env=env))[1])["checks"]
        outcomes = {check["name"]: check["outcome"] for check in doctor}
        assert {outcomes[name] for name in ("redis reachable", "redis version", "maxmemory-policy", "workers")} == {
            "ok"
        }
        assert outcomes["appendfsync"] == "skipped", "INFO does not tell it, and nothing else may be asked"
        operator = RespConnection(f"redis://:first@127.0.0.1:{port}")
        with contextlib.closing(operator):
            (tmp_path / "password").write_text("second")
            operator.command("operators-CONFIG", "SET", "requirepass", "second")
            for kind in ("NORMAL", "PUBSUB"):
                operator.command("operators-CLIENT", "KILL", "TYPE", kind, "SKIPME", "YES")
        async with client(f"127.0.0.1:{web}") as person:
            await person.send("resume", chat="a", after=0)
            await person.next("resumed", chat="a")
            sent = await eventually(lambda: _accepted(ours), within_s=30)
            async with asyncio.timeout(30):
                while not any(sent in frame.get("in_reply_to", ()) for frame in person.seen):
                    await person.next("reply", chat="a")
    finally:
        await ours.close()
        for process in fleet:
            process.kill_group()
        server.kill()
        server.wait(20)


async def _accepted(ours: RedisClient) -> str:
    id = "1" * 32
    await say(Inbox(ours), "What is 7*7?", id=id)
    return id
