"""How long the tests of each file took in the last whole run, in a file of the repository: it puts the longest
first."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

FILE: Final = Path(__file__).parents[1] / "durations.json"
LEAST_S: Final = 2.0
"""A file that takes less is not listed: it fits in anywhere."""

CHANGED: Final = 1.5
"""A figure is replaced when it is wrong by this factor, so that a run seldom changes the file."""


def read() -> dict[str, float]:
    """Return the seconds of each listed test file, by its path in the repository."""
    try:
        found: dict[str, float] = json.loads(FILE.read_text())
    except FileNotFoundError:
        return {}
    return found


def merged(old: Mapping[str, float], new: Mapping[str, float]) -> dict[str, float]:
    """Return what is to be written: a figure stays while it is about right; files that did not run are dropped."""
    result = {}
    for path, seconds in sorted(new.items()):
        if seconds < LEAST_S and old.get(path, 0.0) < LEAST_S * CHANGED:
            continue
        before = old.get(path)
        right = before is not None and before / CHANGED <= max(seconds, LEAST_S) <= before * CHANGED
        result[path] = before if before is not None and right else float(round(max(seconds, LEAST_S)))
    return result


def write(durations: Mapping[str, float]) -> None:
    """Write the file, one line for each path."""
    FILE.write_text(json.dumps(durations, indent=1, sort_keys=True) + "\n")


def summed(reports: Iterable[tuple[str, float]]) -> dict[str, float]:
    """Add the seconds of (path, seconds) up by path."""
    total: dict[str, float] = defaultdict(float)
    for path, seconds in reports:
        total[path] += seconds
    return dict(total)
