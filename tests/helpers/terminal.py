"""A real process on a real (pseudo) terminal, and what it drew there."""

from __future__ import annotations

import fcntl
import os
import pty
import signal
import struct
import subprocess
import sys
import termios
import threading
from pathlib import Path
from typing import Any, Final

from tests.helpers.wait import eventually_sync

ROOT: Final = Path(__file__).parents[2]
ENTER_SCREEN: Final = "\x1b[?1049h"
LEAVE_SCREEN: Final = "\x1b[?1049l"
SHOW_CURSOR: Final = "\x1b[?25h"


class OnTerminal:
    """`python -m console ...` in a window of 80x24. Close it in the end."""

    def __init__(self, *words: str, cwd: Path, **environ: str) -> None:
        self._master, self._slave = pty.openpty()
        self.resize(80, 24)
        self.before = self.modes()
        kept = {key: value for key, value in os.environ.items() if not key.startswith(("SHOAL_", "COLUMNS", "LINES"))}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "console", *words],
            cwd=cwd,
            env={**kept, "PYTHONPATH": str(ROOT), "TERM": "xterm-256color", **environ},
            stdin=self._slave,
            stdout=self._slave,
            stderr=self._slave,
            start_new_session=True,
        )
        self.text = ""
        """All that was drawn, codes and all."""
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def shows(self, *words: str, after: int = 0, within_s: float = 60) -> None:
        """Wait until all of these stand in what was drawn after that character."""
        eventually_sync(
            lambda: all(word in self.text[after:] for word in words),
            within_s,
            what=lambda: f"{words!r} on screen, not {self.text[after:]!r}",
        )

    def type(self, keys: str) -> None:
        """Press keys."""
        os.write(self._master, keys.encode())

    def send(self, number: signal.Signals) -> None:
        """Send a signal to the process."""
        self.process.send_signal(number)

    def resize(self, width: int, height: int) -> None:
        """Make the window so big; who runs in it learns that by SIGWINCH."""
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", height, width, 0, 0))

    def modes(self) -> list[Any]:
        """How the terminal treats what is typed: echo, lines."""
        return termios.tcgetattr(self._slave)

    def ended(self, within_s: float = 60) -> int:
        """The exit code."""
        return self.process.wait(within_s)

    def given_back(self, within_s: float = 60) -> None:
        """Wait for the screen that was there before, a cursor, and a keyboard that shows what is typed."""

        def as_before() -> bool:
            left = self.text.rfind(LEAVE_SCREEN) > self.text.rfind(ENTER_SCREEN) < self.text.rfind(SHOW_CURSOR)
            return left and self.modes() == self.before

        eventually_sync(as_before, within_s, what="a terminal as it was")

    def close(self) -> None:
        """Leave nothing."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self._slave)
        self._reader.join(10)
        os.close(self._master)

    def _read(self) -> None:
        while True:
            try:
                data = os.read(self._master, 65536)
            except OSError:  # nobody has the other end any more
                return
            self.text += data.decode(errors="replace")
