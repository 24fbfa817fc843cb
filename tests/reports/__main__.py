"""The table of kinds: how many inputs each has, and how many of them are right, before and now.

`python -m tests.reports [--litellm] [PATH ...]`: runs the tests of this folder and those of MCP servers, or those of
these paths. With `--litellm`, what asks a model runs a second time, through LiteLLM's client. The exit code is that of
the tests.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections import Counter
from importlib import import_module
from pathlib import Path
from typing import Final

import msgspec
import pytest

FOLDER: Final = Path(__file__).parent
ROOT: Final = FOLDER.parents[1]
MCP: Final = tuple(ROOT / "tests/worker/mcp" / name for name in ("test_malformed.py", "test_schema_repair.py"))
HEAD: Final = ("kind", "inputs", "right before", "right now")


class Counts(msgspec.Struct):
    """Inputs that were tried, and those that came out right, by kind."""

    tried: dict[str, int]
    right: dict[str, int]


class Recorder:
    """Notes the outcome of each test. An input is right if all of its phases passed."""

    def __init__(self) -> None:
        self._outcomes: dict[str, bool] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._outcomes[report.nodeid] = self._outcomes.get(report.nodeid, True) and not report.failed

    def counts(self) -> Counts:
        found = Counts(Counter(), Counter())
        for name, right in self._outcomes.items():
            kind = name.partition("[")[0]
            found.tried[kind] += 1
            found.right[kind] += right
        return found


def run(paths: list[str]) -> tuple[int, Counts]:
    """Run the tests; their exit code and their counts."""
    recorder = Recorder()
    code = pytest.main(["-q", "--no-header", "-p", "no:cacheprovider", *paths], plugins=[recorder])
    return int(code), recorder.counts()


def run_litellm(paths: list[str]) -> Counts:
    """The counts of the same inputs through LiteLLM's client, in a process of its own."""
    command = [sys.executable, "-m", "tests.reports", "--json", *paths]
    environment = os.environ | {"SHOAL_REPORTS_CLIENT": "litellm"}
    ended = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=False)
    return msgspec.json.decode(ended.stdout.splitlines()[-1], type=Counts)


def before(kind: str) -> str:
    """How many inputs of a kind were right before the change that brought it; a dash if nobody has counted."""
    path, _, name = kind.partition("::")
    module = import_module(".".join(Path(path).with_suffix("").parts))
    return str(getattr(module, "BEFORE", {}).get(name, "-"))


def table(counts: Counts, litellm: Counts | None) -> str:
    """The table as text."""
    head = [*HEAD, *(["LiteLLM"] if litellm else [])]
    rows = [head]
    for kind, tried in counts.tried.items():
        name = kind.partition("::")[2].removeprefix("test_").replace("_", " ")
        row = [name, str(tried), before(kind), str(counts.right[kind])]
        rows.append(row + ([str(litellm.right[kind]) if kind in litellm.tried else "-"] if litellm else []))
    numbers = [[int(row[at]) if row[at] != "-" else 0 for row in rows[1:]] for at in range(1, len(head))]
    rows.append(["all", *(str(sum(column)) for column in numbers)])
    widths = [max(len(row[at]) for row in rows) for at in range(len(head))]
    return "\n".join(
        "  ".join(
            text.ljust(width) if at == 0 else text.rjust(width)
            for at, (text, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    )


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.reports", description="The table of kinds of inputs.")
    parser.add_argument("--litellm", action="store_true", help="a column for LiteLLM's client, too")
    parser.add_argument("--json", action="store_true", help="the counts as JSON, on the last line")
    parser.add_argument("paths", nargs="*", default=[str(FOLDER), *map(str, MCP)])
    chosen = parser.parse_args()
    code, counts = run(chosen.paths)
    if chosen.json:
        print(msgspec.json.encode(counts).decode())
    else:
        litellm = run_litellm(chosen.paths) if chosen.litellm else None
        print(f"\n{table(counts, litellm)}")
    return code


if __name__ == "__main__":
    sys.exit(main())
