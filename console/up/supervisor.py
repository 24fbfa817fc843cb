"""Runs Shoal on one machine: the embedded Valkey and the processes of the Procfile, until it is
told to stop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Final, TextIO

from console.up.child import Child, Reaper, RestartBackoff
from shared.embedded import EmbeddedFailed, EmbeddedValkey
from shared.tasks import cancel_all

_COLOURS: Final = ("\x1b[36m", "\x1b[35m", "\x1b[32m", "\x1b[33m", "\x1b[34m")
_PLAIN: Final = "\x1b[0m"
_BOLD: Final = "\x1b[1m"
_VALKEY_LOOK_S: Final = 0.2


class Terminal:
    """The lines of all processes on one stream, each behind its process's name."""

    def __init__(self, out: TextIO, *, colours: bool, closed: Callable[[], None]) -> None:
        self._out = out
        self._colours = colours
        self._closed = closed
        self._seen: dict[str, str] = {}

    def say(self, name: str, line: str) -> None:
        """Print one line. A reader that went away counts as a wish to stop."""
        colour = self._seen.setdefault(name, _COLOURS[len(self._seen) % len(_COLOURS)])
        prefix = f"{name:<7} |"
        self._write(f"{colour}{prefix}{_PLAIN} {line}" if self._colours else f"{prefix} {line}")

    def announce(self, line: str) -> None:
        """Print one line of ours, without a name in front."""
        self._write(f"{_BOLD}{line}{_PLAIN}" if self._colours else line)

    def _write(self, line: str) -> None:
        try:
            self._out.write(f"{line}\n")
            self._out.flush()
        except (OSError, ValueError):
            self._closed()


class Supervisor:
    """Starts everything, keeps it running, and stops it in order: gateways, then workers, then
    Valkey. `stop` set once ends it in order; kill() makes whatever still drains end now."""

    def __init__(
        self,
        children: Sequence[Child],
        valkey: EmbeddedValkey | None,
        terminal: Terminal,
        reaper: Reaper,
        *,
        drain_s: float,
    ) -> None:
        self._children = children
        self._valkey = valkey
        self._terminal = terminal
        self._reaper = reaper
        self._drain_s = drain_s

    async def run(self, stop: asyncio.Event, ready: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Until `stop` is set and all has ended. `ready` is run beside the processes.

        Raises EmbeddedFailed when the embedded Valkey does not start; nothing runs then.
        """
        beside: list[asyncio.Task[None]] = []
        try:
            if self._valkey:
                await asyncio.to_thread(self._valkey.start)
                beside.append(asyncio.create_task(self._keep_valkey(self._valkey)))
            if not stop.is_set():
                for child in self._children:
                    child.start()
                beside.append(asyncio.create_task(ready()))
            await stop.wait()
            self._terminal.say("shoal", "stopping; what runs is finished or handed over (Ctrl-C again ends it now)")
        finally:
            await cancel_all(beside)
            await self._end()

    def kill(self) -> None:
        """End every process now; only Valkey may still write what it holds."""
        for child in self._children:
            child.kill()

    async def _end(self) -> None:
        for gateways in (True, False):
            group = [child for child in self._children if (child.name == "gateway") is gateways]
            await asyncio.gather(*(child.stop(self._drain_s) for child in group))
        if self._valkey:
            pid = self._valkey.pid
            await asyncio.to_thread(self._valkey.stop)
            if pid is not None:
                self._reaper.forget(pid)
        await asyncio.to_thread(self._reaper.close)

    async def _keep_valkey(self, valkey: EmbeddedValkey) -> None:
        loop = asyncio.get_running_loop()
        backoff = RestartBackoff()
        pid, started = valkey.pid, loop.time()
        while True:
            await asyncio.sleep(_VALKEY_LOOK_S)
            if valkey.running:
                continue
            if pid is not None:
                self._reaper.forget(pid)
            wait_s = backoff.after(loop.time() - started)
            self._terminal.say("shoal", f"valkey ended; it starts again in {wait_s:.1f} s with the data it had")
            await asyncio.sleep(wait_s)
            try:
                await asyncio.to_thread(valkey.start)
            except EmbeddedFailed as exc:
                for line in str(exc).splitlines():
                    self._terminal.say("valkey", line)
            pid, started = valkey.pid, loop.time()
