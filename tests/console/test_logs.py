"""The log of `shoal up`: bounded, private, filtered and followed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from console.main import cli
from console.up.log_file import LOG_FILE, OLDER_FILE, LogFile, LogFileReader

INFO = "22:52:35 [\x1b[32minfo     \x1b[0m] sandbox ready  tier=bubblewrap"
ERROR = "22:52:36 [error    ] turn failed"


def logs(folder: Path, *words: str) -> Result:
    return CliRunner().invoke(cli, ["logs", *words], env={"SHOAL_DATA__DIR": str(folder)})


@pytest.fixture
def written(tmp_path: Path) -> Path:
    """A folder with five lines of three processes."""
    log = LogFile(tmp_path)
    for process, line in (("shoal", "starting"), ("worker", INFO), ("gateway", ERROR), ("gateway", "  Traceback")):
        log.write(process, line)
    log.write("worker", '{"event": "slow turn", "level": "warning"}')
    log.close()
    return tmp_path


def test_lines_stand_behind_their_process_and_without_colours(written: Path) -> None:
    """The file is its owner's alone."""
    result = logs(written)
    assert result.output.splitlines()[:3] == [
        "shoal   | starting",
        "worker  | 22:52:35 [info     ] sandbox ready  tier=bubblewrap",
        "gateway | 22:52:36 [error    ] turn failed",
    ]
    assert (written / LOG_FILE).stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (("--process", "worker"), ["worker", "worker"]),
        (("--level", "warning"), ["gateway", "gateway", "worker"]),
        (("--level", "error"), ["gateway", "gateway"]),
        (("-n", "1"), ["worker"]),
        (("--since", "1h", "--process", "shoal"), ["shoal"]),
        (("--since", "0s"), []),
    ],
)
def test_lines_are_chosen_by_process_level_and_time(written: Path, words: tuple[str, ...], shown: list[str]) -> None:
    """A line of a traceback has the level of the line before it."""
    lines = json.loads(logs(written, "--json", *words).output)["lines"]
    assert [line["process"] for line in lines] == shown


def test_a_time_that_is_none_is_wrong_usage(written: Path) -> None:
    """With how to write one."""
    result = logs(written, "--since", "yesterday")
    assert (result.exit_code, "write 30s, 10m, 2h or 1d" in result.stderr) == (2, True)


def test_where_something_else_runs_shoal_its_command_is_shown(tmp_path: Path) -> None:
    """The folder has no log then."""
    result = logs(tmp_path)
    assert result.exit_code == 1
    for command in ("journalctl -u", "docker compose logs", "kubectl logs"):
        assert command in result.stderr


def test_the_log_is_bounded_and_is_followed_over_a_rotation(tmp_path: Path) -> None:
    """A full file takes the place of the older one; who follows misses nothing of these two."""
    log = LogFile(tmp_path, file_bytes=400)
    log.write("shoal", "line 0")
    reader = LogFileReader(tmp_path, lambda line: True)
    seen = [line.text for line in reader.read_all()]
    for number in range(1, 40):
        log.write("shoal", f"line {number}")
        if number % 3 == 0:
            seen += [line.text for line in reader.read_new()]
    log.close()
    assert seen == [f"line {number}" for number in range(40)]
    assert all((tmp_path / name).stat().st_size <= 400 for name in (LOG_FILE, OLDER_FILE))
    LogFile(tmp_path / "nowhere").write("shoal", "lost, and nothing fails")
