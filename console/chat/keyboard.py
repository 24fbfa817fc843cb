"""Input at the terminal: lines with editing and history, and Ctrl-C."""

from __future__ import annotations

import importlib
import re
import signal
import sys
from collections.abc import Callable, Iterable, Sequence
from types import FrameType, ModuleType, TracebackType
from typing import Any, Final

import click

from shared.terminal_text import clean_line

PROMPT: Final = "> "


def _editor() -> ModuleType | None:
    """Import readline, which then edits the lines of `input`. None in a Python built without it."""
    try:
        return importlib.import_module("readline")
    except ImportError:
        return None


class TerminalInput:
    """A context manager that takes over Ctrl-C. Outside of `read_line` it calls `interrupt`."""

    def __init__(self, interrupt: Callable[[], None]) -> None:
        self._interrupt = interrupt
        self._editor = _editor() if sys.stdin.isatty() else None
        self._reading = False
        self._typed = ""
        self._before: Any = None

    def __enter__(self) -> TerminalInput:
        self._before = signal.signal(signal.SIGINT, self._on_interrupt)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        signal.signal(signal.SIGINT, self._before)

    def add_history(self, texts: Iterable[str]) -> None:
        """Add lines for the arrow keys."""
        if self._editor is not None:
            for text in texts:
                self._editor.add_history(clean_line(text))

    def complete_words(self, words: Iterable[str]) -> None:
        """Let the Tab key complete these words at the beginning of a line."""
        offered = sorted(words)
        if self._editor is None:
            return

        def complete(start: str, at: int) -> str | None:
            fitting = [word for word in offered if word.startswith(start)] if start else []
            return fitting[at] if at < len(fitting) else None

        self._editor.set_completer_delims("")  # the whole line is one word: `/he`, and not `he`
        self._editor.set_completer(complete)
        libedit = "libedit" in (self._editor.__doc__ or "")
        self._editor.parse_and_bind("bind ^I rl_complete" if libedit else "tab: complete")

    def read_line(self) -> str | None:
        """Return the next line; None at the end of input, and for Ctrl-C on an empty line."""
        while True:
            try:
                self._reading = True
                if sys.stdout.isatty():
                    return input(PROMPT)
                click.echo(PROMPT, nl=False, err=True)  # else it would stand in the pipe
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
        while True:
            click.echo(f"{prompt} [y/n] ", nl=False, err=not sys.stdout.isatty())
            try:
                self._reading = True
                reply = input().strip().casefold()
            except (EOFError, KeyboardInterrupt):
                click.echo(err=True)
                return None
            finally:
                self._reading = False
            if reply in ("y", "yes", "n", "no"):
                return reply.startswith("y")

    def _on_interrupt(self, number: int, frame: FrameType | None) -> None:
        if not self._reading:
            self._interrupt()
            return
        # Now, because readline has forgotten the line when the exception arrives.
        self._typed = self._editor.get_line_buffer() if self._editor is not None else ""
        raise KeyboardInterrupt


_NUMBER: Final = re.compile(r"[1-9][0-9]?")


def button_by_number(text: str, buttons: Sequence[str]) -> str:
    """Return the label of the button whose number is all of `text`; else `text`."""
    typed = text.strip()
    number = int(typed) if _NUMBER.fullmatch(typed) else 0
    return buttons[number - 1] if 1 <= number <= len(buttons) else text


def unknown_command(text: str, commands: Sequence[str]) -> str:
    """Return the `/word` at the beginning of a text if it looks like a command but is not one; else
    `""`."""
    word = text.split(maxsplit=1)[0]
    looks = bool(commands) and re.fullmatch(r"/\w+", word) is not None
    return word if looks and word.lower() not in commands else ""
