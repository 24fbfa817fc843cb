"""Runs Shoal on one machine: the embedded Valkey and the processes of the Procfile."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TextIO

from console.up import reaper
from console.up.log_file import LogFile
from shared.embedded import EmbeddedFailed, EmbeddedValkey
from shared.tasks import cancel_all

_EXIT_SETTINGS: Final = 2
_LINE_LIMIT_BYTES: Final = 64 * 1024
_COLOURS: Final = ("\x1b[36m", "\x1b[35m", "\x1b[32m", "\x1b[33m", "\x1b[34m")
_PLAIN: Final = "\x1b[0m"
_BOLD: Final = "\x1b[1m"
_VALKEY_LOOK_S: Final = 0.2
_NO_ROOM: Final = (errno.ENOSPC, errno.EDQUOT)


class Terminal:
    """The lines of all processes on one stream, each behind its process's name, and in the log."""

    def __init__(self, out: TextIO, *, colours: bool, closed: Callable[[], None], log: LogFile | None = None) -> None:
        self._out = out
        self._colours = colours
        self._closed = closed
        self._log = log
        self._seen: dict[str, str] = {}
        self._last_line_at = 0.0

    def say(self, name: str, line: str) -> None:
        """Print one line. A reader that went away counts as a wish to stop; a full disk does
        not."""
        colour = self._seen.setdefault(name, _COLOURS[len(self._seen) % len(_COLOURS)])
        prefix = f"{name:<7} |"
        self._last_line_at = time.monotonic()
        if self._log is not None:
            self._log.write(name, line)
        self._write(f"{colour}{prefix}{_PLAIN} {line}" if self._colours else f"{prefix} {line}")

    async def wait_quiet(self, quiet_s: float, *, within_s: float) -> None:
        """Return when no process has printed a line for `quiet_s`, at the latest after
        `within_s`."""
        deadline = time.monotonic() + within_s
        while True:
            wait_s = min(deadline, self._last_line_at + quiet_s) - time.monotonic()
            if wait_s <= 0:
                return
            await asyncio.sleep(wait_s)

    def announce(self, line: str) -> None:
        """Print one line of ours, without a name in front."""
        self._write(f"{_BOLD}{line}{_PLAIN}" if self._colours else line)

    def _write(self, line: str) -> None:
        try:
            self._out.write(f"{line}\n")
            self._out.flush()
        except (OSError, ValueError) as exc:
            if not (isinstance(exc, OSError) and exc.errno in _NO_ROOM):
                self._closed()


class Reaper:
    """A process that cleans up if this one is killed. `step` says in which order groups end."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-S", str(Path(reaper.__file__))],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={},  # it needs none of ours, and others of this user could read it there
            start_new_session=True,
        )

    def watch(self, step: int, pid: int) -> None:
        """End the group of `pid` if this process dies."""
        self._send(f"watch {step} {pid}")

    def forget(self, pid: int) -> None:
        """That group has ended; its number may soon be somebody else's."""
        self._send(f"forget {pid}")

    def close(self) -> None:
        """Let it go; it ends whatever it still watches."""
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
            self._process.communicate(timeout=10)

    def _send(self, line: str) -> None:
        assert self._process.stdin is not None
        # Without it only the clean-up after our own violent death is lost.
        with contextlib.suppress(OSError):
            self._process.stdin.write(f"{line}\n".encode())
            self._process.stdin.flush()


class RestartBackoff:
    """No wait after the first three ends, then waits that double from 0.2 s to 5 s. A life of 10 s
    starts over."""

    def __init__(self) -> None:
        self._ends = 0

    def after(self, lived_s: float) -> float:
        """Return the wait after a life of `lived_s` seconds."""
        self._ends = 1 if lived_s >= 10.0 else self._ends + 1
        return 0.0 if self._ends <= 3 else min(5.0, 0.2 * 2.0 ** min(self._ends - 4, 5))


def _when(wait_s: float) -> str:
    return f"in {wait_s:.1f} s" if wait_s else "at once"


@dataclass(eq=False)
class Child:
    """Keeps one command running in a process group of its own. `say` gets each of its lines;
    `stop_all` is set when it cannot run with these settings, which a restart would not fix."""

    name: str
    command: Sequence[str]
    environment: Mapping[str, str]
    step: int
    say: Callable[[str, str], None]
    reaper: Reaper
    stop_all: asyncio.Event
    hopeless: bool = False
    """True when it ended because of its settings."""

    _process: asyncio.subprocess.Process | None = None
    _asked_to_end: asyncio.subprocess.Process | None = None
    _task: asyncio.Task[None] | None = None
    _stopping: asyncio.Event = field(default_factory=asyncio.Event, init=False)

    def start(self) -> None:
        """Start it, and again whenever it ends, until stop() is called."""
        self._task = asyncio.create_task(self._keep_running(), name=self.name)

    async def stop(self, grace_s: float) -> None:
        """SIGTERM, and SIGKILL after `grace_s` seconds. Returns when the whole group is gone."""
        self._stopping.set()
        self._signal(signal.SIGTERM)
        if self._task is None:
            return
        done, _ = await asyncio.wait([self._task], timeout=grace_s)
        if not done:
            self.say("shoal", f"{self.name} did not end within {grace_s:g} s and is killed")
            self.kill()
        await self._task

    def restart(self) -> None:
        """Let it end in order; it then starts again. One that is ending already goes on with that."""
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        """End it and whatever it started, now."""
        self._stopping.set()
        self._signal(signal.SIGKILL)

    async def _keep_running(self) -> None:
        loop = asyncio.get_running_loop()
        backoff = RestartBackoff()
        while not self._stopping.is_set():
            started = loop.time()
            code = await self._run_once()
            if self._stopping.is_set():
                return
            if code == _EXIT_SETTINGS:
                self.say("shoal", f"{self.name} cannot start with these settings; what is wrong stands above")
                self.hopeless = True
                self.stop_all.set()
                return
            wait_s = backoff.after(loop.time() - started)
            how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"
            self.say("shoal", f"{self.name} {how}; it starts again {_when(wait_s)}")
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), wait_s)

    async def _run_once(self) -> int:
        self._process = process = await asyncio.create_subprocess_exec(
            *self.command,
            env=self.environment,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            # Ctrl-C in the terminal reaches the supervisor alone, which knows the order.
            start_new_session=True,
        )
        self.reaper.watch(self.step, process.pid)
        if self._stopping.is_set():  # stop() came while it was being started
            self._signal(signal.SIGTERM)
        assert process.stdout is not None
        pump = asyncio.create_task(self._pass_on(process.stdout))
        code = await process.wait()
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)  # what it left behind would hold ports and work
        await asyncio.wait([pump], timeout=1.0)
        pump.cancel()
        self.reaper.forget(process.pid)
        return code

    async def _pass_on(self, lines: asyncio.StreamReader) -> None:
        rest = b""
        while chunk := await lines.read(_LINE_LIMIT_BYTES):
            *whole, rest = (rest + chunk).split(b"\n")
            if len(rest) > _LINE_LIMIT_BYTES:
                whole = [*whole, rest]
                rest = b""
            for line in whole:
                self.say(self.name, line.decode(errors="replace").rstrip("\r"))
        if rest:
            self.say(self.name, rest.decode(errors="replace"))

    def _signal(self, sig: signal.Signals) -> None:
        """Send SIGTERM to the process, which ends its own children, or SIGKILL to its group."""
        process = self._process
        if process is not None and process.returncode is None:
            if sig == signal.SIGTERM:
                # A second one would cut short what the first one lets it finish.
                if self._asked_to_end is process:
                    return
                self._asked_to_end = process
            with contextlib.suppress(ProcessLookupError, PermissionError):
                (os.killpg if sig == signal.SIGKILL else os.kill)(process.pid, sig)


@dataclass(eq=False)
class Supervisor:
    """Starts everything, keeps it running, and stops it in order: gateways, then workers, then
    Valkey. `stop` set once ends it in order; kill() makes whatever still drains end now."""

    children: Sequence[Child]
    valkey: EmbeddedValkey | None
    terminal: Terminal
    reaper: Reaper
    drain_s: float

    async def run(self, stop: asyncio.Event, ready: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Until `stop` is set and all has ended. `ready` is run beside the processes.

        Raises EmbeddedFailed when the embedded Valkey does not start; nothing runs then.
        """
        beside: list[asyncio.Task[None]] = []
        try:
            if self.valkey:
                await asyncio.to_thread(self.valkey.start)
                beside.append(asyncio.create_task(self._keep_valkey(self.valkey)))
            if not stop.is_set():
                for child in self.children:
                    child.start()
                beside.append(asyncio.create_task(ready()))
            await stop.wait()
            self.terminal.say("shoal", "stopping; what runs is finished or handed over (Ctrl-C again ends it now)")
        finally:
            await cancel_all(beside)
            await self._end()

    def kill(self) -> None:
        """End every process now; only Valkey may still write what it holds."""
        for child in self.children:
            child.kill()

    async def _end(self) -> None:
        for gateways in (True, False):
            group = [child for child in self.children if (child.name == "gateway") is gateways]
            await asyncio.gather(*(child.stop(self.drain_s) for child in group))
        if self.valkey:
            pid = self.valkey.pid
            await asyncio.to_thread(self.valkey.stop)
            if pid is not None:
                self.reaper.forget(pid)
        await asyncio.to_thread(self.reaper.close)

    async def _keep_valkey(self, valkey: EmbeddedValkey) -> None:
        loop = asyncio.get_running_loop()
        backoff = RestartBackoff()
        pid = valkey.pid
        started = loop.time()
        while True:
            await asyncio.sleep(_VALKEY_LOOK_S)
            if valkey.running:
                continue
            if pid is not None:
                self.reaper.forget(pid)
            wait_s = backoff.after(loop.time() - started)
            self.terminal.say("shoal", f"valkey ended; it starts again {_when(wait_s)} with the data it had")
            await asyncio.sleep(wait_s)
            try:
                await asyncio.to_thread(valkey.start)
            # OSError: its files cannot be written. A full disk is what ended it, so it tries again.
            except (EmbeddedFailed, OSError) as exc:
                for line in str(exc).splitlines():
                    self.terminal.say("valkey", line)
            pid = valkey.pid
            started = loop.time()
