"""What holds for every command: help with an example that works, JSON and nothing else, exit codes."""

from __future__ import annotations

import asyncio
import json
import re
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from console.main import _COMMANDS, cli
from shared.messages.codec import encode
from shared.store import keys
from shared.store.client.redis_client import RedisClient
from shared.store.fleet.presence import announce
from shared.store.turns.inbox import Inbox
from tests.helpers.build import message, say
from tests.helpers.fleet_seen import gateway, worker

Shoal = Callable[..., Result]
AWAY = "redis://:canary@127.0.0.1:1/0"

ANSWERS = {
    "audit": "", "config check": "", "config show": "", "cron list": "", "dead drop": "ab12cd34 --yes", "dead list": "",
    "dead replay": "ab12cd34", "dead show": "ab12cd34 --text", "doctor": "", "jobs cancel": "--all", "jobs list": "",
    "pair list": "", "session export": "web:owner/a", "session forget": "web:owner/a --yes", "session list": "",
    "session read": "web:owner/a", "session requeue": "", "session set": "web:owner/a k=v", "session spent": "",
    "session show": "web:owner/a --memory", "session trust": "web:owner/a", "status": "", "top": "",
}  # fmt: skip
"""Commands that answer something of a store with a session and a dead letter, and what is typed for that."""

NOTHING = {
    "cron remove": "zz --yes", "cron show": "zz", "dead drop": "ffffffff --yes", "dead list": "--before ffffffff",
    "dead replay": "ffffffff", "dead show": "ffffffff", "jobs cancel": "zz", "jobs show": "zz", "pair approve": "ZZZZ",
    "pair revoke": "telegram:77", "session export": "web:owner/none", "session forget": "web:owner/none --yes",
    "session read": "web:owner/none", "session set": "web:owner/none k=v",
    "session show": "web:owner/none", "session trust": "web:owner/none",
}  # fmt: skip
"""Commands that are asked for something that there is not."""

ELSEWHERE = {
    "chat", "completion", "config check", "config show", "config trust", "init", "logs", "open", "session import",
    "token", "up",
}  # fmt: skip
"""Commands that ask no Redis, or nothing before they have read a file."""


def leaves(command: click.Command, path: str) -> Iterator[tuple[str, click.Command]]:
    """Every command that does something, by what is typed."""
    if isinstance(command, click.Group):
        for name, inner in command.commands.items():
            yield from leaves(inner, f"{path} {name}")
    else:
        yield path, command


def every() -> dict[str, click.Command]:
    """All of them."""
    found: dict[str, click.Command] = {}
    for name in _COMMANDS:
        command = cli.get_command(click.Context(cli), name)
        assert command is not None
        found |= dict(leaves(command, name))
    return found


EVERY = every()


def has(path: str, option: str) -> bool:
    return any(option in parameter.opts for parameter in EVERY[path].params)


@pytest.fixture
def shoal(redis_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shoal:
    """On a store with a fleet, a session and a dead letter."""
    monkeypatch.chdir(tmp_path)

    async def fill() -> None:
        client = RedisClient(redis_url)
        await announce(client, worker())
        await announce(client, gateway())
        await say(Inbox(client), "hello", chat="owner/a")
        sent = message("please help", chat="owner/a")
        fields = ("member", keys.turn(sent.session), "n", 1, "reason", "error ab12cd34", "m", encode(sent))
        await client.command("XADD", keys.DEAD, "*", *fields)
        await client.close()

    asyncio.run(fill())

    def run(*arguments: str, **environ: str) -> Result:
        return CliRunner().invoke(cli, list(arguments), env={"SHOAL_REDIS__URL": redis_url, **environ})

    return run


@pytest.mark.parametrize("path", EVERY)
def test_every_command_has_help_with_an_example_that_can_be_typed(
    path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each line of the examples is read by the command itself: an option that was renamed is noticed here."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept.json").write_text("{}")
    result = CliRunner().invoke(cli, [*path.split(), "--help"])
    assert result.exit_code == 0
    assert result.output.startswith(f"Usage: cli {path}")
    _, _, below = result.output.partition("Examples:\n")
    examples = re.findall(r"\bshoal [^|>)\n]*", below)
    assert examples, "no example"
    assert len(examples) == len(below.strip().splitlines()), "an example was wrapped"
    for example in examples:
        words = shlex.split(example)[1:]
        assert " ".join(words).startswith(path), example
        context = EVERY[path].make_context(path, words[len(path.split()) :])
        context.close()


def test_this_test_knows_every_command() -> None:
    """One that is new says here what it answers, or that it asks no Redis."""
    assert ELSEWHERE | ANSWERS.keys() | NOTHING.keys() == EVERY.keys()
    without = {path for path in EVERY if not has(path, "--json")}
    assert without == {"completion", "up"}


@pytest.mark.parametrize("path", ANSWERS)
def test_with_json_there_is_json_and_nothing_else(shoal: Shoal, path: str) -> None:
    """On standard output one object, on standard error not a word while nothing is wrong."""
    result = shoal(*path.split(), *ANSWERS[path].split(), "--json")
    assert isinstance(json.loads(result.stdout), dict)
    assert result.stderr == ""
    assert result.exit_code in ((0, 1) if path in ("status", "doctor") else (0,))


@pytest.mark.parametrize("path", ANSWERS)
def test_without_json_there_are_lines_for_people(shoal: Shoal, path: str) -> None:
    """And no code of a terminal in a pipe."""
    result = shoal(*path.split(), *ANSWERS[path].split())
    assert result.stdout.strip()
    assert "\x1b" not in result.output
    assert result.stderr == ""


@pytest.mark.parametrize("path", NOTHING)
@pytest.mark.parametrize("json_too", [False, True])
def test_what_there_is_not_is_one_line_and_exit_code_one(shoal: Shoal, path: str, json_too: bool) -> None:
    """What to do stands in it, or how to see what there is."""
    result = shoal(*path.split(), *NOTHING[path].split(), *(["--json"] if json_too else []))
    assert result.exit_code == 1
    if result.stdout:
        assert json_too
        assert isinstance(json.loads(result.stdout), dict)
    else:
        [line] = result.stderr.splitlines()
        assert len(line) > 20
    assert "Traceback" not in result.output


@pytest.mark.parametrize("path", sorted((ANSWERS.keys() | NOTHING.keys()) - ELSEWHERE))
@pytest.mark.parametrize("json_too", [False, True])
def test_redis_away_is_one_line_and_exit_code_three(shoal: Shoal, path: str, json_too: bool) -> None:
    """Where it was looked for, without the password. `doctor` says it as the check that failed."""
    words = (ANSWERS | NOTHING)[path].split()
    result = shoal(*path.split(), *words, *(["--json"] if json_too else []), SHOAL_REDIS__URL=AWAY)
    assert "canary" not in result.output
    if path == "doctor":
        assert result.exit_code == 1
        assert "redis://:***@127.0.0.1:1/0" in result.stdout
        return
    assert (result.exit_code, result.stdout) == (3, "")
    [line] = result.stderr.splitlines()
    assert line.startswith("Redis is away")
    assert "redis://:***@127.0.0.1:1/0" in line


@pytest.mark.parametrize("path", EVERY)
def test_wrong_settings_and_wrong_usage_are_exit_code_two(shoal: Shoal, path: str) -> None:
    """Said by the command that is typed, before it does anything."""
    assert shoal(*path.split(), "--no-such-option").exit_code == 2
    if path in ANSWERS and path not in ("doctor", "config show"):
        result = shoal(*path.split(), *ANSWERS[path].split(), SHOAL_WORKER__TRUNS="1")
        assert (result.exit_code, result.stdout) == (2, "")
        assert "worker.truns" in result.stderr
