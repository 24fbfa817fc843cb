"""Full screen of `shoal top`. Restores the terminal when it ends. Uses rich's live display."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import termios
import tty
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any, Final

from rich.console import Console, ConsoleOptions, Group, RenderResult
from rich.live import Live

from console.top.page import Observation, ViewMode, page
from console.top.poller import SnapshotPoller
from shared.tasks import cancel_all
from shared.terminal_text import clean

QUIT: Final = ("q", "Q")
INTERRUPTED: Final = 128
"""Exit code of a process ended by a signal, minus the number of the signal."""


def screen() -> Console | None:
    """Return a console for full screen; None when standard output cannot do it."""
    console = Console(highlight=False, markup=False, emoji=False)
    return console if sys.stdout.isatty() and not console.is_dumb_terminal else None


class _LivePage:
    """Renderable that is drawn for the current size of the terminal."""

    def __init__(self) -> None:
        self.look, self.mode = Observation(), ViewMode()

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width, height = options.size
        yield Group(*page(self.look, self.mode, width, height))


class FullScreen:
    """Context manager for the full screen, with unbuffered keys if standard input is a terminal."""

    def __init__(self, console: Console) -> None:
        self.page = _LivePage()
        self.keyed = sys.stdin.isatty()
        self._console = console
        self._live: Live | None = None
        self._before: list[Any] | None = None

    def __enter__(self) -> FullScreen:
        if self.keyed:
            self._before = termios.tcgetattr(sys.stdin)
            tty.setcbreak(sys.stdin)
        self._live = Live(
            self.page, console=self._console, screen=True, auto_refresh=False, redirect_stdout=False,
            redirect_stderr=False,
        )  # fmt: skip
        self._live.start(refresh=True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None
        if self._before is not None:
            termios.tcsetattr(sys.stdin, termios.TCSADRAIN, self._before)

    def draw(self) -> None:
        """Redraw the page."""
        if self._live is not None:
            self._live.refresh()

    def suspend(self) -> None:
        """Handle Ctrl-Z: restore the terminal until the process is continued."""
        self.__exit__(None, None, None)
        os.kill(os.getpid(), signal.SIGSTOP)
        self.__enter__()


async def show(watch: SnapshotPoller, console: Console, every_s: float) -> int:
    """Run the live view. Return the exit code: 0 after q, else that of the signal."""
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[int] = loop.create_future()
    pressed = asyncio.Event()

    def end(code: int) -> None:
        if not ended.done():
            ended.set_result(code)

    with FullScreen(console) as terminal, _signals(loop, terminal, end):
        terminal.page.mode = ViewMode(every_s=every_s, keyed=terminal.keyed)

        def press() -> None:
            read = b""
            with contextlib.suppress(OSError):  # the terminal is gone
                read = os.read(sys.stdin.fileno(), 64)
            keys = clean(read.decode(errors="replace"))  # without arrows, which are escape sequences
            if not read or any(key in QUIT for key in keys):
                end(0)
            for key in keys:
                terminal.page.mode = terminal.page.mode.after_key(key)
            pressed.set()
            terminal.draw()

        async def keep_looking() -> None:
            while True:
                terminal.page.look = await watch.poll()
                terminal.draw()
                await asyncio.sleep(every_s)
                while terminal.page.mode.paused:
                    pressed.clear()
                    await pressed.wait()

        looking = asyncio.create_task(keep_looking())
        if terminal.keyed:
            loop.add_reader(sys.stdin.fileno(), press)
        try:
            looking.add_done_callback(lambda _: end(0))
            await ended
        finally:
            if terminal.keyed:
                loop.remove_reader(sys.stdin.fileno())
            await cancel_all([looking])
    if not looking.cancelled():
        looking.result()  # a bug; with the terminal given back its traceback can be read
    return ended.result()


@contextlib.contextmanager
def _signals(loop: asyncio.AbstractEventLoop, terminal: FullScreen, end: Callable[[int], None]) -> Iterator[None]:
    """Handle signals in the event loop, so that the terminal is always restored."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, end, INTERRUPTED + number)
    loop.add_signal_handler(signal.SIGTSTP, terminal.suspend)
    loop.add_signal_handler(signal.SIGWINCH, terminal.draw)
    try:
        yield
    finally:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGTSTP, signal.SIGWINCH):
            loop.remove_signal_handler(number)
