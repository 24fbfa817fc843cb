"""Operators are checks_by_name which tier is on, and when none is, why and what to do."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

from click.testing import CliRunner

from console.main import cli
from shared.settings import Settings
from shared.settings.sections.tool_use import ToolsSettings, WorkspaceSettings
from shared.store.client.redis_client import RedisClient
from shared.store.fleet.presence import Presence, announce
from worker.sandbox.command import Sandbox, SandboxBroken
from worker.sandbox.probe import SandboxFinder, SandboxOff, choose_sandbox


async def _refuses(_: Settings) -> Sandbox:
    raise SandboxBroken("it did not start; allow user namespaces")


async def test_the_doctor_says_which_tier_is_on_or_why_none_is(
    client: RedisClient, redis_url: str, folder: Path
) -> None:
    """The log and the worker's presence use one text; off is safe, and not a failure."""
    settings = Settings(workspace=WorkspaceSettings(root=folder.parent), tools=ToolsSettings())
    off = await choose_sandbox(settings, [("bubblewrap", _refuses)])
    assert isinstance(off, SandboxOff)
    finder = SandboxFinder(settings, lambda _: None, tiers=[("bubblewrap", _refuses)])
    await finder.find()
    assert finder.details()["sandbox.why"] == off.reason
    given = {"kind": "worker", "host": "h", "pid": 7, "started_at": 1, "version": "0"}
    await announce(client, Presence(name="w1", details=finder.details(), **given))  # type: ignore[arg-type]
    await announce(client, Presence(name="w2", details={"sandbox": "runner", "sandbox.limited_by": "cgroup"}, **given))  # type: ignore[arg-type]

    def checks_by_name() -> dict[str, dict[str, str]]:
        result = CliRunner().invoke(cli, ["doctor", "--json"], env={"SHOAL_REDIS__URL": redis_url})
        return {check["name"]: check for check in json.loads(result.output)["checks"]}

    checks = await asyncio.to_thread(checks_by_name)
    check = checks["sandbox of exec"]
    assert check["outcome"] == "skipped"
    for word in ("off (w1)", "runner with cgroup (w2)", "allow user namespaces", "docs/sandbox.md"):
        assert word in check["found"]
    assert "allow user" not in checks["workers"]["found"]
