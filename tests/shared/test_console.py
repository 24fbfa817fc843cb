from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from shared.console.main import cli
from shared.store.client import RedisClient
from shared.store.presence import Presence, announce
from shared.version import VERSION
from tests.helpers.valkey import command

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def _empty_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def shoal(*arguments: str, **environ: str) -> Result:
    """Run the command in this process."""
    return CliRunner().invoke(cli, list(arguments), env=environ)


def test_it_lists_its_commands_and_its_release() -> None:
    """`shoal --help` is the way in."""
    text = shoal("--help").output
    assert all(name in text for name in ("config", "status", "up"))
    assert shoal("--version").output == f"shoal, version {VERSION}\n"
    assert shoal("frobnicate").exit_code == 2


def test_the_release_is_the_same_everywhere() -> None:
    """The package's metadata and what the processes say of themselves."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["version"] == VERSION
    assert project["scripts"]["shoal"] == "shared.console.main:main"


def test_it_runs_as_a_module_too() -> None:
    """`python -m shared.console`, where no script is installed."""
    told = subprocess.run(
        [sys.executable, "-m", "shared.console", "config", "check"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert told.stdout == "The settings are fine.\n"


def test_config_check_lists_every_problem_and_fails() -> None:
    """A deployment runs it before anything starts."""
    result = shoal("config", "check", SHOAL_WORKER__TRUNS="1", SHOAL_WEB__PORT="x")
    assert result.exit_code == 2
    assert len(result.stderr.splitlines()) == 2
    assert "Traceback" not in result.output
    assert json.loads(shoal("config", "check", "--json").output) == {"ok": True}


def test_config_show_masks_secrets_in_both_forms() -> None:
    """It can be pasted into a bug report."""
    secret = "canary-77"
    environ = {"SHOAL_MODEL__API_KEY": secret, "SHOAL_REDIS__URL": f"redis://:{secret}@h:1/0"}
    plain, as_json = shoal("config", "show", **environ), shoal("config", "show", "--json", **environ)
    assert secret not in plain.output + as_json.output
    assert 'model.api_key = "***"' in plain.output.splitlines()
    assert "worker.lease_s = 15.0" in plain.output.splitlines()
    assert json.loads(as_json.output)["redis"]["url"] == "redis://:***@h:1/0"


def test_status_says_where_to_start_when_nothing_runs() -> None:
    """No traceback on a fresh machine."""
    result = shoal("status")
    assert result.exit_code == 2
    assert "no embedded Valkey is running" in result.stderr


def test_status_of_a_redis_that_is_away_is_one_line() -> None:
    """The operator's first question is whether Redis answers."""
    result = shoal("status", SHOAL_REDIS__URL="redis://127.0.0.1:1/0")
    assert result.exit_code == 1
    assert result.stderr.startswith("Redis is away")


def test_status_shows_queues_and_processes(redis_url: str) -> None:
    """Due, running, delayed and the age of the oldest; each live process with its slots."""
    command(redis_url, "ZADD", "shoal:queue:turns", "1000", "turn:web:a", "1000", "turn:web:b", "9e15", "turn:web:c")
    presence = Presence(
        kind="worker", name="w1", host="h", pid=7, started_at=1000, version=VERSION, running=2, slots=100, draining=True
    )

    async def appear() -> None:
        client = RedisClient(redis_url)
        await announce(client, presence)
        await client.close()

    asyncio.run(appear())
    told = json.loads(shoal("status", "--json", SHOAL_REDIS__URL=redis_url).output)
    turns, jobs = told["queues"]
    assert turns.pop("oldest_due_s") > 1_000_000
    assert turns == {"name": "turns", "due": 2, "running": 0, "delayed": 1}
    assert jobs["due"] == 0
    assert told["processes"][0]["name"] == "w1"
    text = shoal("status", SHOAL_REDIS__URL=redis_url).output
    assert "worker   w1    h     7" in text
    assert "2 of 100  draining" in text


def test_status_with_no_process_says_what_to_start(redis_url: str) -> None:
    """An empty table would be a riddle."""
    assert "No gateway and no worker is running" in shoal("status", SHOAL_REDIS__URL=redis_url).output
