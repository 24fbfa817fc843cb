"""Runs tests for `make test` and `make test-all`: `python -m tests.suite <arguments of pytest>`.

A test that fails runs once more, alone, after all others. What passes then is called flaky, with the load of the
machine: a race of the test or of the product that somebody has to find. More than three, or one that fails again, is
red. The end of the output names each of them in a line.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

FLAKY: Final = 3
"""So many may pass only when they run alone."""

GREEN, FAILED = 0, 1  # exit codes of pytest; all others mean that a run was not whole


def run(arguments: Sequence[str]) -> tuple[int, Mapping[str, str]]:
    """Run pytest; return its exit code and the first line of each failed test's error."""
    with tempfile.TemporaryDirectory(prefix="shoal-suite-") as folder:
        file = Path(folder, "failures.json")
        command = [sys.executable, "-m", "pytest", "-p", "tests.helpers.failures", "--failures", str(file)]
        code = subprocess.run([*command, *arguments], check=False).returncode
        return code, json.loads(file.read_text()) if file.exists() else {}


def main(arguments: Sequence[str]) -> int:
    """Run the tests that `arguments` choose, and once more, alone, those that fail."""
    code, failed = run(arguments)
    if code != FAILED or not failed:
        return code
    load = os.getloadavg()[0]
    again: Mapping[str, str] = failed
    if len(failed) <= FLAKY:
        say(f"\nOnce more, alone: {len(failed)} of them.")
        code, again = run(["-q", *failed])
        if code not in (GREEN, FAILED):
            return code
    else:
        say(f"\nMore than {FLAKY} tests failed; none of them runs again.")
    for test, error in failed.items():
        if test in again:
            say(f"failed: {test}: {again[test]}")
        else:
            say(f"flaky: {test}: {error} (load {load:.1f} on {os.cpu_count()} cores; it passed alone)")
    return FAILED if again else GREEN


def say(line: str) -> None:
    """Print it before what the next process prints."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
