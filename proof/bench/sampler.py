"""Where the CPU time of a process goes: its main thread's stack, looked at every few milliseconds of CPU time.

In the process: `install(path)`; then SIGUSR1 begins to count, SIGUSR2 ends and writes what was found to the path. What
C code without a Python frame uses (the event loop's own, system calls) is seen at the Python line that runs next.
"""

from __future__ import annotations

import json
import os
import signal
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import FrameType
from typing import Final

EVERY_S: Final = 0.001
ROOT: Final = str(Path(__file__).parents[2]) + "/"

Stack = tuple[str, ...]
"""`file:function` from the innermost frame outwards."""

Stacks = Mapping[Stack, int]
"""How often each was seen."""


class Sampler:
    """Counts stacks."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen: Counter[tuple[tuple[str, str], ...]] = Counter()

    def begin(self, _signal: int, _frame: FrameType | None) -> None:
        """Count from now on."""
        self._seen.clear()
        signal.setitimer(signal.ITIMER_PROF, EVERY_S, EVERY_S)

    def look(self, _signal: int, frame: FrameType | None) -> None:
        """Count the stack of this moment."""
        stack = []
        while frame is not None:
            code = frame.f_code
            stack.append((code.co_filename, code.co_name))
            frame = frame.f_back
        self._seen[tuple(stack)] += 1

    def end(self, _signal: int, _frame: FrameType | None) -> None:
        """Count no more, and write it down."""
        signal.setitimer(signal.ITIMER_PROF, 0)
        rows = [[count, [f"{_short(file)}:{name}" for file, name in stack]] for stack, count in self._seen.items()]
        made = self._path.with_suffix(".part")
        made.write_text(json.dumps(rows))
        made.replace(self._path)


def install(path: Path) -> None:
    """Listen to the signals."""
    sampler = Sampler(path)
    signal.signal(signal.SIGUSR1, sampler.begin)
    signal.signal(signal.SIGUSR2, sampler.end)
    signal.signal(signal.SIGPROF, sampler.look)
    signal.siginterrupt(signal.SIGPROF, False)


def read(path: Path) -> Stacks:
    """What a sampler wrote."""
    return {tuple(stack): count for count, stack in json.loads(path.read_text())}


def added(all_seen: Iterable[Mapping[str, Stacks]]) -> dict[str, Stacks]:
    """Several looks as one, by process."""
    found: dict[str, Counter[Stack]] = {}
    for seen in all_seen:
        for process, stacks in seen.items():
            found.setdefault(process, Counter()).update(stacks)
    return dict(found)


def shares(stacks: Stacks, part_of: Callable[[Stack], str]) -> dict[str, float]:
    """How much of the time each part has, the greatest first."""
    found: Counter[str] = Counter()
    for stack, count in stacks.items():
        found[part_of(stack)] += count
    whole = sum(found.values()) or 1
    return {part: count / whole for part, count in found.most_common()}


def hot(stacks: Stacks, most: int = 20) -> list[tuple[str, float, float]]:
    """The functions of our own in which most time goes: name, share with what they call, share of themselves."""
    within: Counter[str] = Counter()
    own: Counter[str] = Counter()
    for stack, count in stacks.items():
        for name in dict.fromkeys(frame for frame in stack if not frame.startswith(("<", "tests/"))):
            within[name] += count
        own[stack[0]] += count
    whole = sum(stacks.values()) or 1
    found = sorted(within, key=lambda name: (-within[name], -own[name], name))[:most]
    return [(name, within[name] / whole, own[name] / whole) for name in found]


def _short(file: str) -> str:
    if file.startswith(ROOT):
        file = file.removeprefix(ROOT)
    for mark in ("site-packages/", f"lib{os.sep}python"):
        if mark in file:
            return file.rpartition(mark)[2]
    return file
