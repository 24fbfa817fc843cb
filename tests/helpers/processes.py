"""Real gateways and workers as processes of their own, in process groups of their own."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil

ROOT = Path(__file__).parents[2]

PLAIN = {"SHOAL_LOG__FORMAT": "json", "SHOAL_METRICS__PORT": "0", "SHOAL_WORKER__LEASE_S": "60"}
"""A lease that no stall of a busy machine outlasts. A test in which one must lapse sets a shorter one."""


class Process:
    """One `python -m ...`; `log` is what it wrote."""

    def __init__(self, module: str, *args: str, env: dict[str, str], log: Path, root: Path = ROOT) -> None:
        self.log_path = log
        with log.open("ab") as out:
            self.popen = subprocess.Popen(
                [sys.executable, "-m", module, *args],
                cwd=root,
                env={**_clean_environment(), **PLAIN, **env},
                stdout=out,
                stderr=out,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        return self.popen.pid

    @property
    def log(self) -> str:
        return self.log_path.read_text(errors="replace")

    @property
    def alive(self) -> bool:
        return self.popen.poll() is None

    def children(self) -> list[psutil.Process]:
        """The processes it started that still run, the longest living first."""
        found: dict[psutil.Process, float] = {}
        with contextlib.suppress(psutil.NoSuchProcess):
            for child in psutil.Process(self.pid).children(recursive=True):
                with contextlib.suppress(psutil.NoSuchProcess):  # a trial of the sandbox ends as it is looked at
                    if child.status() != psutil.STATUS_ZOMBIE and child.cmdline():
                        found[child] = child.create_time()
        return sorted(found, key=found.__getitem__)

    def child(self, word: str) -> psutil.Process:
        """The longest living process that it started with this word in its command line."""
        for child in self.children():
            with contextlib.suppress(psutil.NoSuchProcess):
                if word in child.cmdline():
                    return child
        raise AssertionError(f"it started nothing with {word!r}")

    def terminate(self) -> None:
        """SIGTERM to the process itself."""
        self.popen.send_signal(signal.SIGTERM)

    def wait(self, timeout_s: float = 60.0) -> int:
        """Its exit code."""
        return self.popen.wait(timeout_s)

    def kill_group(self) -> None:
        """SIGKILL to it and everything it started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self.popen.wait(60)


def _clean_environment() -> dict[str, str]:
    return {key: value for key, value in os.environ.items() if not key.startswith("SHOAL_")}
