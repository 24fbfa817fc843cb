"""Lines that fit a terminal."""

from __future__ import annotations

import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios
from pathlib import Path

import pytest
from rich.text import Text

from console.grid import Cell, Column, fact, flow, grid, wrapped
from console.output import print_table
from shared.terminal_text import brief, clean
from tests.helpers.processes import ROOT

COLUMNS = (
    Column("name", 9, least=6),
    Column("count", 8, right=True),
    Column("about", 2, least=5, from_end=True),
    Column("pid", 1),
)
ROWS = [
    [Cell("worker-one-1"), Cell("7"), Cell("a long story"), Cell("4711")],
    [Cell("worker-two-2"), Cell("1,234", "red"), Cell("short"), Cell("8")],
]


def plain(lines: list[Text]) -> list[str]:
    return [line.plain for line in lines]


def test_a_table_is_as_wide_as_it_must_be() -> None:
    """Numbers stand to the right."""
    assert plain(grid(COLUMNS, ROWS, 80)) == [
        "name          count  about         pid",
        "worker-one-1      7  a long story  4711",
        "worker-two-2  1,234  short         8",
    ]


def test_a_narrow_table_is_cut_and_then_loses_what_matters_least() -> None:
    """Names at their front, for they differ at their ends; words at their end."""
    assert plain(grid(COLUMNS, ROWS, 32)) == [
        "name      count  about      pid",
        "…r-one-1      7  a long s…  4711",
        "…r-two-2  1,234  short      8",
    ]
    assert plain(grid(COLUMNS, ROWS, 22)) == [
        "name    count  about",
        "…one-1      7  a long…",
        "…two-2  1,234  short",
    ]
    assert plain(grid(COLUMNS, ROWS, 14)) == ["name     count", "…-one-1      7", "…-two-2  1,234"]


def test_a_column_that_says_nothing_is_left_out() -> None:
    """Nor is a column cut that has no `least`."""
    rows = [[row[0], row[1], Cell(""), Cell("")] for row in ROWS]
    assert plain(grid(COLUMNS, rows, 80))[0] == "name          count"
    assert plain(grid([Column("a"), Column("b")], [[Cell("1234"), Cell("5678")]], 6)) == ["a", "1234"]


@pytest.mark.parametrize("width", range(7, 60))
def test_no_line_is_longer_than_the_terminal_is_wide(width: int) -> None:
    """Also of characters that take two places, and of facts and sentences."""
    wide = [[Cell("工作机一号"), Cell("7"), Cell("很长的故事"), Cell("4711")]]
    lines = [*grid(COLUMNS, ROWS + wide, width), *flow("label", [fact("12345678", name="name")] * 4, width)]
    lines += wrapped("! a sentence 很长的故事 with awordthatislongerthantheterminaliswide in it", "red", width)
    assert [line.plain for line in lines if line.cell_len > width] == []


def test_control_codes_do_not_reach_the_terminal() -> None:
    """Whoever names a host must not move the cursor."""
    lines = [*grid([Column("a")], [[Cell("x\x1b[2Jy\n")]], 20), *flow("b", [fact("\x1b]0;t\x07z")], 20)]
    assert plain(lines) == ["a", "xy", "b        z"]


def test_facts_flow_over_lines() -> None:
    """Under each other, behind the label; no gap of a part that is missing."""
    facts = [fact("12", name="due", after="now"), fact("3", after="run"), fact("", after="`shoal`")]
    assert plain(flow("people", facts, 40)) == ["people   due 12 now   3 run   `shoal`"]
    assert plain(flow("people", facts, 26)) == ["people   due 12 now", "         3 run   `shoal`"]


@pytest.mark.parametrize(
    ("seconds", "result"),
    [
        (0.0004, "0.4 ms"), (0.02, "20 ms"), (0.82, "820 ms"), (0.9999, "1.0 s"), (4.14, "4.1 s"), (12.4, "12 s"),
        (95, "95 s"), (200, "3 min 20 s"), (3700, "1 h 1 min"), (200_000, "2 d 7 h"),
    ],
)  # fmt: skip
def test_a_time_is_reported_in_the_unit_that_says_most(seconds: float, result: str) -> None:
    """Two digits are enough to decide."""
    assert brief(seconds) == result


def test_a_table_in_a_pipe_is_whole(capsys: pytest.CaptureFixture[str]) -> None:
    """Whatever is cut there is lost to the next program; columns stand under each other in any script."""
    rows: list[dict[str, object]] = [
        {"session": "web:owner/" + "x" * 90, "messages": 1},
        {"session": "会话", "messages": 22},
    ]
    print_table(rows, "nothing")
    lines = capsys.readouterr().out.splitlines()
    assert lines[1] == "web:owner/" + "x" * 90 + "  1"
    assert lines[2] == "会话" + " " * 96 + "  22"


def test_a_table_on_a_terminal_fits_it(tmp_path: Path) -> None:
    """Long cells are cut, ids never, and no column is missing."""
    script = (
        "from console.output import print_table\n"
        "row = {'reference': 'ab12cd34', 'session': 'web:owner/' + 'x' * 90, 'why': 'e' * 60}\n"
        "print_table([row, {'reference': 'b', 'session': 'c', 'why': 'd'}], 'nothing')"
    )
    master, slave = pty.openpty()
    fcntl.ioctl(master, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 60, 0, 0))
    environ = {"PYTHONPATH": str(ROOT), "TERM": "xterm-256color", "NO_COLOR": "1"}
    process = subprocess.Popen([sys.executable, "-c", script], stdout=slave, cwd=tmp_path, env=environ)
    assert process.wait(60) == 0
    lines = [clean(line) for line in os.read(master, 65536).decode().splitlines()]
    os.close(slave)
    os.close(master)
    assert max(map(len, lines)) <= 60
    assert [line.split()[0] for line in lines] == ["reference", "ab12cd34", "b"]
    assert lines[0].split() == ["reference", "session", "why"]
    assert lines[1].count("…") == 2
