"""A failed test runs once more, alone, and is named in the last lines."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

ONCE = """
import pathlib
def test_passes(): pass
def test_fails_once():
    seen = pathlib.Path(__file__).with_name("{name}")
    if not seen.exists():
        seen.touch()
        assert 1 == 2, "the first line\\nand the second"
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A project with nothing but tests."""
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = -p no:cacheprovider -p no:hypothesispytest\n")
    return tmp_path


def suite(folder: Path) -> tuple[int, list[str]]:
    """Its exit code, and the lines that follow the last run."""
    command, env = [sys.executable, "-m", "tests.suite"], {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)
    lines = done.stdout.splitlines()
    return done.returncode, [line for line in lines if line.startswith(("flaky: ", "failed: ", "More", "Once more"))]


def test_a_green_run_says_nothing_more(folder: Path) -> None:
    """And nothing runs twice."""
    (folder / "test_a.py").write_text("def test_a(): pass\n")
    assert suite(folder) == (0, [])


def test_what_passes_alone_is_called_flaky_with_the_load(folder: Path) -> None:
    """The run is green; the first error is told."""
    (folder / "test_a.py").write_text(ONCE.format(name="seen"))
    code, lines = suite(folder)
    assert code == 0
    assert lines[0] == "Once more, alone: 1 of them."
    assert lines[1].startswith("flaky: ")
    assert "test_a.py::test_fails_once: AssertionError: the first line (load " in lines[1]


def test_what_fails_again_is_red_and_named_with_its_first_line(folder: Path) -> None:
    """Also when another was flaky."""
    (folder / "test_a.py").write_text(ONCE.format(name="seen") + "def test_never(): raise ValueError('no')\n")
    code, lines = suite(folder)
    assert code == 1
    assert [line.split(": ")[0] for line in lines] == ["Once more, alone", "flaky", "failed"]
    assert lines[2].endswith("test_a.py::test_never: ValueError: no")


def test_more_than_three_are_red_at_once(folder: Path) -> None:
    """Many accidents are none."""
    for name in "abcd":
        (folder / f"test_{name}.py").write_text(ONCE.format(name=name))
    code, lines = suite(folder)
    assert code == 1
    assert [line.split(": ")[0] for line in lines] == [
        "More than 3 tests failed; none of them runs again.",
        *["failed"] * 4,
    ]


def test_a_broken_file_and_a_fixture_that_ends_badly_are_named(folder: Path) -> None:
    """What failed is not always a test's own line."""
    (folder / "test_a.py").write_text(
        "import pytest\n@pytest.fixture\ndef f():\n    yield\n    raise OSError('at the end')\ndef test_a(f): pass\n"
    )
    code, lines = suite(folder)
    assert code == 1
    assert lines[-1].endswith("test_a.py::test_a: OSError: at the end")
    (folder / "test_a.py").write_text("import nothing_of_that_name\n")
    assert suite(folder)[0] == 2, "the run was not whole"
