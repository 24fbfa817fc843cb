"""The prompt at the bottom of a chat: editing, history, completion and keys, by prompt_toolkit."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from prompt_toolkit import PromptSession
from prompt_toolkit.application import run_in_terminal
from prompt_toolkit.completion import CompleteEvent, Completer, Completion, PathCompleter
from prompt_toolkit.document import Document
from prompt_toolkit.filters import Condition, is_done
from prompt_toolkit.formatted_text import ANSI, StyleAndTextTuples, to_formatted_text
from prompt_toolkit.history import FileHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.shortcuts import CompleteStyle
from prompt_toolkit.styles import Style
from prompt_toolkit.utils import is_dumb_terminal

from console.chat.local_commands import ATTACH, SESSIONS, WITH_ARGUMENT

HISTORY_FILE: Final = Path(".local", "state", "shoal", "chat-history")  # below the user's home
HISTORY_BYTES: Final = 256 * 1024
"""A longer history loses its older half at the next start."""

ESCAPE_S: Final = 0.3
"""Wait for the key after Esc: Esc Enter is a new line, Esc alone stops the answer."""

_REDRAW_S: Final = 0.05  # of growing text; each redraw costs a rendering
_STYLE: Final = Style.from_dict(
    {"bottom-toolbar": "noreverse", "bottom-toolbar.text": "ansibrightblack", "mark": "bold"}
)


class PromptView(NamedTuple):
    """Things that the prompt shows and offers; each is asked for again at every redraw."""

    above: Callable[[], str]
    """Text with colours, in lines above the prompt: the answer that grows."""

    status: Callable[[], str]
    busy: Callable[[], bool]
    stop: Callable[[], None]
    commands: Callable[[], Sequence[str]]
    chats: Callable[[], Sequence[str]]


class ChatPrompt:
    """Reads lines while other things are printed above it."""

    def __init__(self, view: PromptView, history: Path | None = None) -> None:
        self._view = view
        file = history or Path.home() / HISTORY_FILE
        self._session: PromptSession[str] = PromptSession(
            message=self._message,
            multiline=True,
            prompt_continuation="  ",
            history=FileHistory(str(prepare_history(file))),
            completer=ChatCompleter(view.commands, view.chats),
            # It completes at once: the Enter key right after Tab finds the whole word.
            complete_style=CompleteStyle.READLINE_LIKE,
            complete_while_typing=False,
            enable_open_in_editor=True,
            tempfile_suffix=".md",
            key_bindings=self._keys(),
            bottom_toolbar=self._status,
            style=_STYLE,
        )
        self._session.app.min_redraw_interval = _REDRAW_S
        self._session.app.timeoutlen = ESCAPE_S
        self._session.app.ttimeoutlen = 0.05

    async def read_message(self) -> str:
        """Return the next message. Raises EOFError when the person leaves, or after `abandon`."""
        return await self._session.prompt_async()

    async def print_above(self, show: Callable[[], None]) -> None:
        """Call `show`, which prints, while the prompt is out of the way."""
        await run_in_terminal(show)

    def refresh(self) -> None:
        """Draw the text above and the status again, soon."""
        self._session.app.invalidate()

    def abandon(self) -> None:
        """Make `read_message` raise EOFError, if it is waiting."""
        if self._session.app.is_running and not self._session.app.is_done:
            self._session.app.exit(exception=EOFError)

    def _message(self) -> StyleAndTextTuples:
        mark: StyleAndTextTuples = [("class:mark", "> ")]
        # What was typed stays, the growing text does not
        above = "" if is_done() else self._view.above()
        return [*to_formatted_text(ANSI(above)), ("", "\n"), *mark] if above else mark

    def _status(self) -> StyleAndTextTuples:
        return [("class:bottom-toolbar.text", self._view.status())]

    def _keys(self) -> KeyBindings:
        keys = KeyBindings()

        @keys.add("enter")
        def _send(event: KeyPressEvent) -> None:
            event.current_buffer.validate_and_handle()

        @keys.add("escape", "enter")
        def _new_line(event: KeyPressEvent) -> None:
            event.current_buffer.insert_text("\n")

        @keys.add("escape", filter=Condition(self._view.busy))
        def _stop(event: KeyPressEvent) -> None:
            self._view.stop()

        @keys.add("c-c")
        @keys.add("<sigint>")  # Ctrl-C while something is printed above the prompt
        def _cancel(event: KeyPressEvent) -> None:
            if event.current_buffer.text:
                # reset() would load the history again, later
                event.current_buffer.document = Document()
            elif self._view.busy():
                self._view.stop()
            else:
                event.app.exit(exception=EOFError)

        return keys


class ChatCompleter(Completer):
    """Completes commands at the beginning of a line, paths after /attach and chats after
    /sessions."""

    def __init__(self, commands: Callable[[], Sequence[str]], chats: Callable[[], Sequence[str]]) -> None:
        self._commands = commands
        self._chats = chats
        self._paths = PathCompleter(expanduser=True)

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        text = document.text_before_cursor
        word, space, rest = text.lstrip().partition(" ")
        if word == ATTACH and space:
            yield from self._paths.get_completions(Document(rest, len(rest)), complete_event)
            return
        if not space:
            offered = self._commands()
            typed = word
        elif word == SESSIONS:
            offered = self._chats()
            typed = rest
        else:
            return
        for one in offered:
            if typed and one.startswith(typed):
                more = " " if one in WITH_ARGUMENT else ""
                yield Completion(f"{one}{more}", start_position=-len(typed))


def can_prompt() -> bool:
    """Return False for a terminal without a cursor that can be moved."""
    return not is_dumb_terminal()


def prepare_history(file: Path) -> Path:
    """Make the file for its owner alone, and drop the older half of a long one."""
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.close(os.open(file, os.O_WRONLY | os.O_CREAT, 0o600))
        file.chmod(0o600)
        if file.stat().st_size > HISTORY_BYTES:
            newer = file.read_bytes()[-HISTORY_BYTES // 2 :]
            # Each entry begins with a line of its time
            file.write_bytes(newer[newer.find(b"\n# ") + 1 :])
    except OSError:  # a home that cannot be written: this start keeps no history
        return Path(os.devnull)
    return file
