"""The time that a test took itself, without the time in which the machine let others run.

The kernel counts how long the threads of a test, or its server, were ready to run and had no processor (`schedstat`),
and how long the machine below this one ran others (`steal`). A slow disk, a shared cache or a lower clock rate it does
not count: a test that seems too slow is measured again, alone, by `tests/suite.py`.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

_FEW_MODULES: Final = 30
_TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")


class OwnTime:
    """Measure from the moment it is made. `servers` are processes that the test waits for: its Valkey."""

    def __init__(self, *servers: int | None) -> None:
        self._processes = ("self", *(str(pid) for pid in servers if pid is not None))
        self._modules = len(sys.modules)
        self._delays_s, self._stolen_s = self._delays(), _stolen_s()
        self._began, self._computed_s = time.perf_counter(), time.process_time()

    def seconds(self) -> float:
        """The seconds so far. 0 for the test that loads a library, because it pays for all that follow."""
        if len(sys.modules) - self._modules > _FEW_MODULES:
            return 0.0
        took, computed = time.perf_counter() - self._began, time.process_time() - self._computed_s
        delayed = sum(max(0.0, delay - self._delays_s.get(thread, 0.0)) for thread, delay in self._delays().items())
        # What waited for a delayed thread has waited as well, hence twice; what it computed it took in any case.
        return max(0.0, max(computed, took - 2 * delayed) - (_stolen_s() - self._stolen_s))

    def _delays(self) -> dict[Path, float]:
        """How long each thread was ready to run and had no processor; nothing where Linux does not say."""
        return dict(delay for process in self._processes for delay in delays_of(process))


def delays_of(process: str) -> Iterator[tuple[Path, float]]:
    """Yield each thread of a process, and how long it was ready to run and had no processor."""
    for thread in Path(f"/proc/{process}/task").glob("*/schedstat"):
        try:
            yield thread, int(thread.read_text().split()[1]) / 1e9
        except (OSError, IndexError):
            continue  # it has just ended


def _stolen_s() -> float:
    """How long all processors of this machine were kept by the machine below it."""
    try:
        return int(Path("/proc/stat").read_text().partition("\n")[0].split()[8]) / _TICKS_PER_S
    except (OSError, IndexError):
        return 0.0
