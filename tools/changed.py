"""Runs the tests that a change can reach: `make changed`, or `python -m tools.changed [--against main] [--list]`.

The change is what differs from the branch `main`, committed or not. A fast test is reached when it imports, through
whatever lies between, a file that changed. A test of processes imports little of what it tries: it is reached when it
changed itself, when it imports a changed file directly, or by the channel that was touched (its contracts and e2e). A
file that is no Python is reached through the Python files that say its name. The whole check still decides.
"""

from __future__ import annotations

import argparse
import gc
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePosixPath
from typing import Final

from tests.helpers import kinds
from tools.house.files import House, Source, read_house
from tools.house.imports import import_graph

ROOT: Final = Path(__file__).parents[1]
CONTRACTS: Final = "tests/contracts/channels/"
NOTHING_CHOSEN: Final = 5  # pytest's exit code


def changed_files(root: Path, against: str) -> list[str]:
    """Return the files that differ from the branch `against`, also those that git does not know yet."""
    differ = ["git", "diff", "--name-only", "--relative", "--merge-base", against]
    unknown = ["git", "ls-files", "--others", "--exclude-standard"]
    found: set[str] = set()
    for words in (differ, unknown):
        done = subprocess.run(words, cwd=root, capture_output=True, text=True, check=True)
        found.update(done.stdout.splitlines())
    return sorted(found)


def reached(changed: Iterable[str], graph: Mapping[str, set[str]], sources: Iterable[Source]) -> dict[str, int]:
    """Return each Python file that the change reaches, with the number of imports between (0: it changed itself)."""
    changed = [*changed]
    found = {path: 0 for path in changed if path in graph}
    words = [_spoken(PurePosixPath(path)) for path in changed if not path.endswith(".py")]
    found |= {one.path.as_posix(): 0 for one in sources if any(word in one.text for word in words)}
    importers: dict[str, set[str]] = {}
    for path, imported in graph.items():
        for one in imported:
            importers.setdefault(one, set()).add(path)
    edge = {*found}
    distance = 0
    while edge:
        distance += 1
        edge = {one for path in edge for one in importers.get(path, ())} - {*found}
        found |= dict.fromkeys(edge, distance)
    return found


def files_to_run(found: Mapping[str, int]) -> tuple[list[str], list[str]]:
    """Return the files of fast tests to run, and those of others."""
    tests = [path for path in sorted(found) if PurePosixPath(path).name.startswith("test_")]
    slow = {path for path in tests if kinds.among((*kinds.PROCESS, *kinds.SLOW), path)}
    return [path for path in tests if path not in slow], [path for path in tests if path in slow and found[path] <= 1]


def channels_of(changed: Iterable[str]) -> set[str]:
    """Return the chat channels that the change touches."""
    folders = [PurePosixPath(path).parts for path in changed]
    return {parts[2] for parts in folders if parts[:2] == ("gateway", "channels") and len(parts) > 3}


def _spoken(path: PurePosixPath) -> str:
    """Return how Python code names a file: a script without its end, others by folder and name."""
    return f"{path.parent.name}/{path.stem}" if path.suffix == ".lua" else path.name


def _graph(house: House, root: Path) -> dict[str, set[str]]:
    """Return which file imports which, of tests too. Each test has the `conftest.py` files above it."""
    conftest = Source(PurePosixPath("conftest.py"), (root / "conftest.py").read_bytes())
    every = House(product=[conftest, *house.product, *house.tests], tests=[])
    graph = {path: {*imports} for path, imports in import_graph(every).items()}
    for path in graph:
        graph[path] |= {
            name for folder in PurePosixPath(path).parents if (name := str(folder / "conftest.py")) in graph
        }
        graph[path].discard(path)
    return graph


def main() -> int:
    """List the tests or run them; the exit code is pytest's."""
    parser = argparse.ArgumentParser(prog="python -m tools.changed", description=__doc__)
    parser.add_argument("--against", default="main", metavar="BRANCH")
    parser.add_argument("--list", action="store_true", help="print the test files instead of running them")
    asked = parser.parse_args()
    gc.disable()  # syntax trees live until the end
    changed = changed_files(ROOT, asked.against)
    house = read_house(ROOT)
    fast, slow = files_to_run(reached(changed, _graph(house, ROOT), [*house.python, *house.test_python]))
    channels = sorted(channels_of(changed))
    if asked.list:
        sys.stdout.writelines(f"{path}\n" for path in [*fast, *slow, *(f"{CONTRACTS}: {name}" for name in channels)])
        return 0
    chosen = [["-m", kinds.FAST, *fast]] if fast else []
    chosen += [["-m", kinds.LONG, "--dist", "loadgroup", *slow]] if slow else []
    chosen += [["--dist", "loadgroup", "-k", " or ".join(channels), CONTRACTS, "tests/e2e"]] if channels else []
    return max((_suite(arguments) for arguments in chosen), default=0)


def _suite(arguments: list[str]) -> int:
    command = [sys.executable, "-m", "tests.suite", "-q", "-n", "auto", *arguments]
    code = subprocess.run(command, cwd=ROOT, check=False).returncode
    return 0 if code == NOTHING_CHOSEN else code


if __name__ == "__main__":
    sys.exit(main())
