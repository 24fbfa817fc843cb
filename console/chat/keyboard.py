"""Questions and lines where the prompt of a terminal cannot be: pipes, dumb terminals, `-m`."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import click


class TerminalInput:
    """A context manager that takes over Ctrl-C. Outside of `read_line` it calls `interrupt`."""

    def __init__(self, interrupt: Callable[[], None]) -> None:
        self.answers = sys.stdin.isatty() and sys.stderr.isatty()
        """True when a person can be asked."""

        self._interrupt = interrupt
        self._reading = False
        self._before: Any = None

    def __enter__(self) -> TerminalInput:
        self._before = signal.signal(signal.SIGINT, self._on_interrupt)
        return self

    def __exit__(self, *_: object) -> None:
        signal.signal(signal.SIGINT, self._before)

    def read_line(self) -> str | None:
        """Return the next line; None at the end of input, and for Ctrl-C."""
        self._reading = True
        try:
            # Else it would stand in the pipe
            click.echo("> ", nl=False, err=not sys.stdout.isatty())
            return input()
        except (EOFError, KeyboardInterrupt):
            click.echo(err=True)
            return None
        finally:
            self._reading = False

    def confirm(self, prompt: str) -> bool | None:
        """Ask for y or n; None at the end of input and for Ctrl-C."""
        self._reading = True
        try:
            return click.confirm(prompt, default=None, prompt_suffix=" ", err=not sys.stdout.isatty())
        except click.Abort:
            click.echo(err=True)
            return None
        finally:
            self._reading = False

    def _on_interrupt(self, number: int, frame: FrameType | None) -> None:
        if not self._reading:
            self._interrupt()
            return
        raise KeyboardInterrupt
