"""Processes of a bench: each in a group of its own, and none outlives the bench, however that ends."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final

import psutil

from console.up.supervisor import Reaper

ROOT: Final = Path(__file__).parents[2]
PLAIN: Final = {"SHOAL_LOG__FORMAT": "json", "SHOAL_METRICS__PORT": "0"}
PATIENCE_S: Final = 60.0


class Ended(RuntimeError):
    """A process of the bench is not there any more."""


class Child:
    """A command. With `talks`, lines go both ways; what it writes to its error output is in `log`."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        log: Path | None = None,
        talks: bool = False,
    ) -> None:
        self._log = log
        with contextlib.ExitStack() as stack:
            out = stack.enter_context(log.open("ab")) if log else subprocess.DEVNULL
            self._popen = subprocess.Popen(
                command,
                cwd=ROOT,
                env={**_clean(), **PLAIN, **(env or {})},
                stdin=subprocess.PIPE if talks else subprocess.DEVNULL,
                stdout=subprocess.PIPE if talks else out,
                stderr=out if log else None,
                text=True,
                start_new_session=True,
            )
        self.pid: Final = self._popen.pid

    @property
    def alive(self) -> bool:
        """Whether it runs."""
        return self._popen.poll() is None

    @property
    def log(self) -> str:
        """What it wrote."""
        return self._log.read_text(errors="replace") if self._log else ""

    @property
    def cpu_s(self) -> float:
        """CPU seconds of it until now, all its threads."""
        return cpu_s(self.pid)

    @property
    def memory_kb(self) -> float:
        """Its resident memory."""
        return memory_kb(self.pid)

    def say(self, line: str) -> None:
        """Send it a line."""
        assert self._popen.stdin is not None
        print(line, file=self._popen.stdin, flush=True)

    def line(self) -> str:
        """Its next line. Raises Ended when there is none."""
        assert self._popen.stdout is not None
        line = self._popen.stdout.readline()
        if not line:
            raise Ended(f"process {self.pid} ended: {self.log[-2000:]}")
        return line.rstrip("\n")

    def ask(self, line: str) -> str:
        """Send it a line and return the one that it answers."""
        self.say(line)
        return self.line()

    async def until(self, check: Callable[[], bool], within_s: float = PATIENCE_S) -> None:
        """Wait for it to be so far. Raises Ended with its last words when it ends before, or takes too long."""
        give_up_at = time.monotonic() + within_s
        while not check():
            if not self.alive or time.monotonic() > give_up_at:
                raise Ended(f"process {self.pid} is not ready: {self.log[-2000:]}")
            await asyncio.sleep(0.02)

    def signal(self, sig: signal.Signals) -> None:
        """Send it a signal."""
        self._popen.send_signal(sig)

    def wait(self, within_s: float) -> int:
        """Its exit code. Raises subprocess.TimeoutExpired."""
        return self._popen.wait(within_s)

    def kill(self) -> None:
        """End it and what it started, at once."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self._popen.communicate(timeout=PATIENCE_S)


class Children:
    """Starts them: `with Children() as start: child = start("proof.bench.stub", talks=True)`."""

    def __init__(self) -> None:
        self._started: list[Child] = []

    def __enter__(self) -> Children:
        self._reaper = Reaper()
        return self

    def __call__(
        self,
        module: str,
        *words: str,
        env: Mapping[str, str] | None = None,
        log: Path | None = None,
        talks: bool = False,
    ) -> Child:
        """Start `python -m <module> <words>`."""
        return self.run([sys.executable, "-W", "ignore", "-m", module, *words], env=env, log=log, talks=talks)

    def run(
        self,
        command: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        log: Path | None = None,
        talks: bool = False,
    ) -> Child:
        """Start a command."""
        child = Child(command, env=env, log=log, talks=talks)
        self.watch(child.pid)
        self._started.append(child)
        return child

    def watch(self, pid: int) -> None:
        """End this group, too, if the bench is killed."""
        self._reaper.watch(step=0, pid=pid)

    def forget(self, pid: int) -> None:
        """That group has ended."""
        self._reaper.forget(pid)

    def end(self, child: Child) -> None:
        """End one before the others."""
        child.kill()
        self.forget(child.pid)
        self._started.remove(child)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for child in reversed(self._started):
            child.kill()
            self.forget(child.pid)
        self._reaper.close()


def cpu_s(pid: int) -> float:
    """CPU seconds of a process until now, with threads that have ended, in ns where the system tells them so."""
    if sys.platform == "linux":
        return time.clock_gettime(~pid << 3 | 2)  # its CPU clock, see clock_getcpuclockid(3)
    used = psutil.Process(pid).cpu_times()
    return float(used.user + used.system)


def memory_kb(pid: int) -> float:
    """Resident memory of a process in kB of 1024 bytes."""
    return float(psutil.Process(pid).memory_info().rss) / 1024


def _clean() -> dict[str, str]:
    return {key: value for key, value in os.environ.items() if not key.startswith("SHOAL_")}
