"""What the console says of channels: their settings before a start, and how they stand in the fleet."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from console.main import cli
from shared.store.client.redis_client import RedisClient
from shared.store.fleet.presence import Presence, announce
from shared.version import VERSION
from tests.helpers.pond_package import pond_package

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    with pond_package() as found:
        monkeypatch.setenv("PYTHONPATH", os.pathsep.join([*found, str(ROOT)]))
        yield


def shoal(*arguments: str, **environ: str) -> Result:
    return CliRunner().invoke(cli, list(arguments), env=environ)


def test_config_check_knows_the_settings_of_channels() -> None:
    """Though only a gateway can read them: every problem is a line that names its key."""
    result = shoal("config", "check", SHOAL_CHANNELS__POND__API="http://127.0.0.1:1")
    assert result.exit_code == 2
    assert result.stderr == "channels.pond.token is missing; it must be text, not empty\n"
    unknown = shoal("config", "check", SHOAL_CHANNELS__FROG__TOKEN="x")
    assert unknown.exit_code == 2
    assert "there is no chat platform of this name; there are: " in unknown.stderr


def test_config_check_is_content_with_what_fits() -> None:
    """Also with a channel that is off, and with what belongs to the web chat."""
    fits = {"SHOAL_CHANNELS__POND__API": "http://127.0.0.1:1", "SHOAL_CHANNELS__POND__TOKEN": "x"}
    for environ in (fits, {"SHOAL_CHANNELS__POND__ON": "false"}, {"SHOAL_CHANNELS__WEB__BUSY": "steer"}):
        result = shoal("config", "check", **environ)
        assert (result.exit_code, result.output) == (0, "The settings are fine.\n")


def test_doctor_says_which_channel_does_not_work_and_why(redis_url: str) -> None:
    """By the word of each gateway that has it; those that work are one line."""

    async def appear() -> None:
        client = RedisClient(redis_url)
        for name, details in {
            "g1": {"channels": "web pond", "pond.state": "off", "pond.why": "the token is wrong"},
            "g2": {"channels": "pond", "pond.state": "on"},
        }.items():
            gateway = Presence(
                kind="gateway", name=name, host="h", pid=7, started_at=1000, version=VERSION, details=details
            )
            await announce(client, gateway)
        await client.close()

    asyncio.run(appear())
    result = json.loads(shoal("doctor", "--json", SHOAL_REDIS__URL=redis_url).output)
    checks = {check["name"]: (check["outcome"], check["found"]) for check in result["checks"]}
    assert checks["channels"] == ("ok", "pond (2 gateways), web")
    assert checks["channel pond"] == ("failed", "off on g1: the token is wrong")
    assert "the token" not in checks["gateways"][1]
