"""Input at the terminal: lines with editing and history, and Ctrl-C."""

from __future__ import annotations

import contextlib
import importlib
import signal
import sys
from collections.abc import Callable, Iterable
from types import FrameType, ModuleType
from typing import Any

import click

from shared.terminal_text import clean_line


class TerminalInput:
    """A context manager that takes over Ctrl-C. Outside of `read_line` it calls `interrupt`."""

    def __init__(self, interrupt: Callable[[], None]) -> None:
        self.answers = sys.stdin.isatty() and sys.stderr.isatty()
        """True when a person can be asked."""

        self._interrupt = interrupt
        self._editor: ModuleType | None = None
        if sys.stdin.isatty():
            with contextlib.suppress(ImportError):  # a Python may be built without it
                self._editor = importlib.import_module("readline")  # it edits the lines of `input`
        self._reading = False
        self._typed = ""
        self._before: Any = None

    def __enter__(self) -> TerminalInput:
        self._before = signal.signal(signal.SIGINT, self._on_interrupt)
        return self

    def __exit__(self, *_: object) -> None:
        signal.signal(signal.SIGINT, self._before)

    def prepare(self, history: Iterable[str], words: Iterable[str]) -> None:
        """Give earlier lines to the arrow keys, and words that begin a line to the Tab key."""
        if self._editor is None:
            return
        offered = sorted(words)

        def complete(start: str, at: int) -> str | None:
            return [*(word for word in offered if start and word.startswith(start)), None][at]

        for text in history:
            self._editor.add_history(clean_line(text))
        self._editor.set_completer_delims("")  # the whole line is one word: `/he`, and not `he`
        self._editor.set_completer(complete)
        libedit = "libedit" in (self._editor.__doc__ or "")
        self._editor.parse_and_bind("bind ^I rl_complete" if libedit else "tab: complete")

    def read_line(self) -> str | None:
        """Return the next line; None at the end of input, and for Ctrl-C on an empty line."""
        while True:
            self._reading = True
            try:
                if sys.stdout.isatty():
                    return input("> ")
                click.echo("> ", nl=False, err=True)  # else it would stand in the pipe
                return input()
            except EOFError:
                click.echo(err=True)
                return None
            except KeyboardInterrupt:
                click.echo(err=True)
                if not self._typed:
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
        # Now, because readline has forgotten the line when the exception arrives.
        self._typed = self._editor.get_line_buffer() if self._editor is not None else ""
        raise KeyboardInterrupt
