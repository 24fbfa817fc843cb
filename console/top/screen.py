"""Full screen of `shoal top`. Restores the terminal when it ends. Uses rich's live display."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import termios
import tty

from rich.console import Console, Group
from rich.live import Live

from console.top.fleet_snapshot import Observation, SnapshotPoller
from console.top.page import ViewMode, page
from shared.tasks import cancel_all
from shared.terminal_text import clean


def full_screen() -> Console | None:
    """Return a console for full screen; None when standard output cannot do it."""
    console = Console(highlight=False, markup=False, emoji=False)
    return console if sys.stdout.isatty() and not console.is_dumb_terminal else None


class TopScreen:
    """The live view on the full screen, with unbuffered keys if standard input is a terminal."""

    def __init__(self, poller: SnapshotPoller, console: Console, every_s: float) -> None:
        self._poller = poller
        self._console = console
        self._look = Observation()
        self._mode = ViewMode(every_s=every_s, keyed=sys.stdin.isatty())
        self._before = termios.tcgetattr(sys.stdin) if self._mode.keyed else None
        self._pressed = asyncio.Event()
        self._ended: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._live = self._make_live()

    async def run(self) -> int:
        """Run until q or a signal. Return the exit code: 0 after q, else that of the signal."""
        loop = asyncio.get_running_loop()
        # In the event loop, so that the terminal is always restored.
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, self._end, 128 + number)
        loop.add_signal_handler(signal.SIGTSTP, self._suspend)
        loop.add_signal_handler(signal.SIGWINCH, lambda: self._live.refresh())
        self._open()
        looking = asyncio.create_task(self._keep_looking())
        looking.add_done_callback(lambda _: self._end(0))
        if self._mode.keyed:
            loop.add_reader(sys.stdin.fileno(), self._on_key)
        try:
            await self._ended
        finally:
            if self._mode.keyed:
                loop.remove_reader(sys.stdin.fileno())
            await cancel_all([looking])
            self._close()
        if not looking.cancelled():
            looking.result()  # a bug; with the terminal given back its traceback can be read
        return self._ended.result()

    def _make_live(self) -> Live:
        return Live(
            get_renderable=lambda: Group(*page(self._look, self._mode, *self._console.size)),
            console=self._console,
            screen=True,
            auto_refresh=False,
            redirect_stdout=False,
            redirect_stderr=False,
        )

    def _open(self) -> None:
        if self._before is not None:
            tty.setcbreak(sys.stdin)
        self._live.start(refresh=True)

    def _close(self) -> None:
        self._live.stop()
        if self._before is not None:
            termios.tcsetattr(sys.stdin, termios.TCSADRAIN, self._before)

    def _end(self, code: int) -> None:
        if not self._ended.done():
            self._ended.set_result(code)

    def _suspend(self) -> None:
        """Handle Ctrl-Z: restore the terminal until the process is continued."""
        self._close()
        os.kill(os.getpid(), signal.SIGSTOP)
        self._open()

    def _on_key(self) -> None:
        read = b""
        with contextlib.suppress(OSError):  # the terminal is gone
            read = os.read(sys.stdin.fileno(), 64)
        keys = clean(read.decode(errors="replace"))  # without arrows, which are escape sequences
        if not read or "q" in keys.lower():
            self._end(0)
        for key in keys:
            self._mode = self._mode.after_key(key)
        self._pressed.set()
        self._live.refresh()

    async def _keep_looking(self) -> None:
        while True:
            self._look = await self._poller.poll()
            self._live.refresh()
            await asyncio.sleep(self._mode.every_s)
            while self._mode.paused:
                self._pressed.clear()
                await self._pressed.wait()
