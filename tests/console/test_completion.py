"""What the Tab key completes: by click's protocol, and in a real bash."""

from __future__ import annotations

import asyncio
import os
import resource
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from console.completion import LIMIT_S
from console.main import _COMMANDS, cli
from shared.store import keys
from shared.store.client.redis_client import RedisClient
from shared.store.turns.inbox import Inbox
from tests.helpers.build import say
from tests.helpers.need import need
from tests.helpers.valkey import command

ROOT = Path(__file__).parents[2]
AWAY = "redis://127.0.0.1:1/0"


def environment(url: str, **more: str) -> dict[str, str]:
    kept = {key: value for key, value in os.environ.items() if not key.startswith("SHOAL_")}
    return {**kept, "PYTHONPATH": str(ROOT), "SHOAL_REDIS__URL": url, **more}


def offered(*words: str, url: str = AWAY, shell: str = "bash") -> list[str]:
    """What is offered for the last of the words, as the shell's function is told it."""
    result = subprocess.run(
        [sys.executable, "-m", "console"],
        env=environment(
            url, _SHOAL_COMPLETE=f"{shell}_complete", COMP_WORDS="\n".join(words), COMP_CWORD=str(len(words) - 1)
        ),
        capture_output=True,
        text=True,
        check=True,
        cwd="/",
    )
    assert result.stderr == ""
    return [line for line in result.stdout.splitlines() if line]


@pytest.fixture
def filled(redis_url: str) -> str:
    """Two sessions, two dead letters, a job, a schedule."""

    async def fill() -> None:
        client = RedisClient(redis_url)
        for chat in ("owner/one", "owner/two"):
            await say(Inbox(client), "hello", chat=chat)
        await client.command("ZADD", keys.SUBAGENTS, 0, "k3f7q2aa", 0, "m2aaaaaa")
        await client.command("ZADD", keys.SCHEDULES, 1, "x8r2:web:owner/one", 2, "heartbeat:web:owner/two")
        for reason in ("error ab12cd34", "model_away 00ffee11"):
            await client.command("XADD", keys.DEAD, "*", "member", "turn:web:a", "n", 1, "reason", reason, "m", "x")
        await client.close()

    asyncio.run(fill())
    return redis_url


def test_every_command_is_completed_and_none_is_imported() -> None:
    """The words of the list are enough: what a command needs is loaded when it runs."""
    assert offered("shoal", "") == [f"plain,{name}" for name in _COMMANDS]
    assert offered("shoal", "st") == ["plain,status"]
    assert offered("shoal", "--v") == ["plain,--version"]
    lines = offered("shoal", "top", shell="zsh")
    assert lines == ["plain", "top", _COMMANDS["top"].help]


@pytest.mark.parametrize("name", list(_COMMANDS))
def test_subcommands_and_options_are_completed(name: str) -> None:
    """Of whatever commands there are."""
    command = cli.get_command(click.Context(cli), name)
    assert command is not None
    if isinstance(command, click.Group):
        assert offered("shoal", name, "") == [f"plain,{inner}" for inner in sorted(command.commands)]
    options = {opt for one in command.params if isinstance(one, click.Option) for opt in one.opts if opt[:2] == "--"}
    assert {f"plain,{option}" for option in options} <= set(offered("shoal", name, "--"))


@pytest.mark.parametrize(
    ("words", "values"),
    [
        (("dead", "show", ""), {"00ffee11", "ab12cd34"}),
        (("dead", "replay", "a"), {"ab12cd34"}),
        (("dead", "list", "--before", ""), {"00ffee11", "ab12cd34"}),
        (("session", "show", ""), {"web:owner/one", "web:owner/two"}),
        (("session", "export", "web:owner/one", "web:owner/t"), {"web:owner/two"}),
        (("session", "import", "--session", "web:owner/o"), {"web:owner/one"}),
        (("jobs", "show", ""), {"k3f7q2aa", "m2aaaaaa"}),
        (("jobs", "cancel", "k"), {"k3f7q2aa"}),
        (("jobs", "list", "--session", "web"), {"web:owner/one", "web:owner/two"}),
        (("cron", "show", ""), {"x8r2", "heartbeat"}),
        (("cron", "remove", "x", "--chat", "web:owner/t"), {"web:owner/two"}),
        (("session", "show", "nothing"), set()),
    ],
)
def test_what_is_in_redis_is_completed(filled: str, words: tuple[str, ...], values: set[str]) -> None:
    """Ids and names that somebody would else have to copy."""
    assert set(offered("shoal", *words, url=filled)) == {f"plain,{value}" for value in values}


def test_a_letter_says_why_it_is_one(filled: str) -> None:
    """In shells that show words about a value."""
    assert offered("shoal", "dead", "show", "a", url=filled, shell="zsh") == ["plain", "ab12cd34", "error"]
    assert offered("shoal", "cron", "show", "x", url=filled, shell="fish") == []
    result = subprocess.run(
        [sys.executable, "-m", "console"],
        env=environment(filled, _SHOAL_COMPLETE="fish_complete", COMP_WORDS="shoal cron show x", COMP_CWORD="x"),
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert result.stdout == "plain,x8r2\tweb:owner/one\n"


def test_a_name_that_a_shell_would_run_is_not_offered(redis_url: str) -> None:
    """Chat ids are chosen outside: `$(...)` on a command line is somebody else's command."""
    for name in ("api:x/$(reboot)", "api:x/a;b", "api:x/'q", "api:x/fine"):
        command(redis_url, "HSET", f"shoal:{{0ax}}:session:{name}", "n", "1")
    assert offered("shoal", "session", "show", "api:", url=redis_url) == ["plain,api:x/fine"]


def test_without_redis_there_is_nothing_and_no_word_about_it() -> None:
    """A terminal in which somebody types is no place to complain; nor are wrong settings."""
    assert offered("shoal", "dead", "show", "") == []
    assert offered("shoal", "dead", "show", "", url="nonsense://") == []


def test_a_redis_that_does_not_answer_is_waited_for_in_bounds() -> None:
    """It takes the connection, and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        began = time.monotonic()
        assert offered("shoal", "session", "show", "", url=f"redis://127.0.0.1:{silent.getsockname()[1]}/0") == []
        assert time.monotonic() - began < LIMIT_S + 20


def test_a_store_that_is_huge_is_not_walked_to_its_end(redis_url: str) -> None:
    """Some of the names, at the price of a few commands."""
    script = "for i = 1, 60000 do redis.call('SET', 'shoal:{0ax}:session:web:owner/' .. i, '') end"
    command(redis_url, "EVAL", script, "0", within_s=60)
    command(redis_url, "CONFIG", "RESETSTAT")
    assert len(offered("shoal", "session", "show", "web:", url=redis_url)) == 50
    assert offered("shoal", "session", "show", "telegram:", url=redis_url) == []
    stats = command(redis_url, "INFO", "commandstats")
    [scans] = [line for line in stats.splitlines() if line.startswith("cmdstat_scan:")]
    assert int(scans.split("calls=")[1].split(",")[0]) <= 25


@pytest.mark.parametrize("words", [("",), ("dead", ""), ("session", "export", ""), ("jobs", "show", "--")])
def test_it_is_there_at_once(filled: str, words: tuple[str, ...]) -> None:
    """A quarter of a second or less; in processor time, so that a busy machine does not count, and with room for a
    slow one."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    offered("shoal", *words, url=filled)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 1.0


# Real shells.


def in_bash(line: str, url: str, folder: Path, *, breaks: str = "") -> list[str]:
    """What bash offers at the end of `line`, after `eval "$(shoal completion bash)"`."""
    program = folder / "shoal"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m console "$@"\n')
    program.chmod(0o755)
    script = f"""
        eval "$(shoal completion bash)"
        {breaks}
        COMP_LINE={line!r} COMP_POINT={len(line)}
        # Words as readline makes them.
        mapfile -t COMP_WORDS < <({sys.executable} - "$COMP_LINE" "$COMP_WORDBREAKS" <<'EOF'
import re, sys
line, breaks = sys.argv[1:]
marks = "".join(re.escape(mark) for mark in ":=" if mark in breaks)
words = re.findall(rf"[{{marks}}]+|[^\\s{{marks}}]+" if marks else r"\\S+", line)
print("\\n".join(words + ([""] if line.endswith(" ") else [])))
EOF
        )
        COMP_CWORD=$(( ${{#COMP_WORDS[@]}} - 1 ))
        $(complete -p shoal | sed 's/.*-F \\([^ ]*\\) .*/\\1/') shoal
        printf '%s\\n' "${{COMPREPLY[@]}}"
    """
    result = subprocess.run(
        ["bash", "--norc", "-c", script],
        env=environment(url, PATH=f"{folder}:{os.environ['PATH']}"),
        capture_output=True,
        text=True,
        check=True,
        cwd=folder,
    )
    assert result.stderr == ""
    return result.stdout.split()


def test_a_real_bash_completes_commands_and_names_with_colons(filled: str, tmp_path: Path) -> None:
    """bash takes a colon for the end of a word: what it has already is not offered again."""
    need("bash", found=shutil.which("bash") is not None)
    assert in_bash("shoal dea", filled, tmp_path) == ["dead"]
    assert in_bash("shoal session ", filled, tmp_path) == [
        "export",
        "forget",
        "import",
        "list",
        "read",
        "requeue",
        "set",
        "show",
        "spent",
        "trust",
    ]
    assert in_bash("shoal session show web:owner/o", filled, tmp_path) == ["owner/one"]
    assert in_bash("shoal session show web:", filled, tmp_path) == ["owner/one", "owner/two"]
    assert in_bash("shoal session show we", filled, tmp_path) == ["web:owner/one", "web:owner/two"]
    assert in_bash("shoal jobs list --session=web:owner/t", filled, tmp_path) == ["owner/two"]
    assert in_bash("shoal jobs list --session=", filled, tmp_path) == ["web:owner/one", "web:owner/two"]
    assert in_bash("shoal dead show ", filled, tmp_path) == ["00ffee11", "ab12cd34"]


def test_a_bash_without_colons_as_breaks_gets_the_whole_name(filled: str, tmp_path: Path) -> None:
    """Some people take them out."""
    need("bash", found=shutil.which("bash") is not None)
    breaks = "COMP_WORDBREAKS=${COMP_WORDBREAKS//:}"
    assert in_bash("shoal session show web:owner/o", filled, tmp_path, breaks=breaks) == ["web:owner/one"]


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_the_scripts_of_other_shells_are_clicks(shell: str) -> None:
    """They name our command, and the variable by which it knows that it is asked."""
    result = CliRunner().invoke(cli, ["completion", shell])
    assert result.exit_code == 0
    assert f"_SHOAL_COMPLETE={shell}_complete" in result.output
    assert "shoal" in result.output
    assert CliRunner().invoke(cli, ["completion", "cmd"]).exit_code == 2
