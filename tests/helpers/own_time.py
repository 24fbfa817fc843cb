"""The time that a test took itself, without the time in which the machine let others run."""

from __future__ import annotations

import sys
import time
from pathlib import Path

_FEW_MODULES = 30


class OwnTime:
    """Measure from the moment it is made. `servers` are processes that the test waits for: its Valkey."""

    def __init__(self, *servers: int | None) -> None:
        self._began = time.perf_counter()
        processes = ("self", *(str(pid) for pid in servers if pid is not None))
        self._delays_s = {process: _delay_s(process) for process in processes}
        self._modules = len(sys.modules)

    def seconds(self) -> float:
        """The seconds so far. 0 for the test that loads a library, because it pays for all that follow."""
        if len(sys.modules) - self._modules > _FEW_MODULES:
            return 0.0
        return time.perf_counter() - self._began - 2 * self._delayed_s()  # what waited for us has waited as well

    def _delayed_s(self) -> float:
        """How long this process and the servers were ready to run and had no processor; 0 where Linux does not say."""
        return sum(max(0.0, _delay_s(process) - before) for process, before in self._delays_s.items())


def _delay_s(process: str) -> float:
    try:
        return int(Path(f"/proc/{process}/schedstat").read_text().split()[1]) / 1e9
    except (OSError, IndexError):
        return 0.0
