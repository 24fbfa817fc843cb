"""Full screen of `shoal top`. Restores the terminal when it ends. Uses rich's live display."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import termios
import tty
from pathlib import Path

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from console.top.fleet_snapshot import Observation, SnapshotPoller
from console.top.page import ViewMode, page
from console.top.picker import keys_of, rows_of
from console.top.picker_actions import PickerActions
from shared.tasks import cancel_all


def full_screen() -> Console | None:
    """Return a console for full screen; None when standard output cannot do it."""
    console = Console(highlight=False, markup=False, emoji=False)
    return console if sys.stdout.isatty() and not console.is_dumb_terminal else None


class TopScreen:
    """The live view on the full screen, with unbuffered keys if standard input is a terminal."""

    def __init__(self, poller: SnapshotPoller, console: Console, every_s: float, logs: Path) -> None:
        self._poller = poller
        self._console = console
        self._look = Observation()
        self._mode = ViewMode(every_s=every_s, keyed=sys.stdin.isatty())
        self._before = termios.tcgetattr(sys.stdin) if self._mode.keyed else None
        self._pressed = asyncio.Event()
        self._wanted = asyncio.Event()
        self._ended: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._picker = PickerActions(poller, logs, self._changed)
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
            await cancel_all([looking, *self._picker.tasks])
            self._close()
        if not looking.cancelled():
            looking.result()  # a bug; with the terminal given back its traceback can be read
        return self._ended.result()

    def _make_live(self) -> Live:
        return Live(
            get_renderable=lambda: Group(*self._page()),
            console=self._console,
            screen=True,
            auto_refresh=False,
            redirect_stdout=False,
            redirect_stderr=False,
        )

    def _page(self) -> list[Text]:
        picker = self._picker
        return page(self._look, self._mode, *self._console.size, picker.state, picker.log)

    def _changed(self, *, look: bool) -> None:
        """Draw again after an action, with a new snapshot if `look`."""
        if look:
            self._wanted.set()
            self._pressed.set()
        self._live.refresh()

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
        keys = keys_of(read.decode(errors="replace"))
        asked = self._picker.state.question is not None  # then q is a no
        if not read or (not asked and {"q", "Q"} & set(keys)):
            self._end(0)
        for key in keys:
            if not self._picker.on_key(key, rows_of(self._look)):
                self._mode = self._mode.after_key(key)
                self._pressed.set()
        self._live.refresh()

    async def _keep_looking(self) -> None:
        while True:
            self._look = await self._poller.poll()
            self._live.refresh()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._wanted.wait(), self._mode.every_s)
            while self._mode.paused and not self._wanted.is_set():
                self._pressed.clear()
                await self._pressed.wait()
            self._wanted.clear()
