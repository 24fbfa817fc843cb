"""A chat at a terminal: send a message, follow the answer, send the next."""

from __future__ import annotations

import sys

from console.chat.client import ChatClient
from console.chat.dialog import ChatDialog, MessageNotAccepted, UserLeft, unknown_command
from console.chat.keyboard import TerminalInput
from console.chat.local_commands import LEAVE
from console.chat.screen import JsonScreen, PlainScreen, Screen


def ask_once(url: str, token: str, chat: str, text: str, *, as_json: bool) -> int:
    """Send one message, show its answer, return the exit code. Raises as `ChatDialog.ask` does."""
    screen = JsonScreen() if as_json else _make_screen(Screen)
    # A script does not wait for ever for a gateway that is gone.
    client = ChatClient(url, token, chat, patience_s=60.0)
    with client, TerminalInput(client.interrupt) as keyboard:
        decide = keyboard.confirm if keyboard.answers and not as_json else None
        dialog = ChatDialog(client, screen, own_only=True, decide=decide)
        try:
            return dialog.exit_code(dialog.ask(text))
        except UserLeft:
            return 130


def converse(url: str, token: str, chat: str, *, history: int) -> None:
    """Chat until the person leaves. Raises ChatFailed."""
    if sys.stdin.isatty() and sys.stdout.isatty():
        from console.chat import live_chat  # here: prompt_toolkit is for terminals

        if live_chat.can_prompt():
            live_chat.talk(live_chat.Gateway(url, token), chat, history=history)
            return
    screen = _make_screen(PlainScreen)
    with ChatClient(url, token, chat) as client, TerminalInput(client.interrupt) as keyboard:
        decide = keyboard.confirm if keyboard.answers else None
        dialog = ChatDialog(client, screen, own_only=False, decide=decide)
        try:
            dialog.open(history)
            while (text := keyboard.read_line()) is not None and text.strip() not in LEAVE:
                text = dialog.expand_number(text)
                dialog.catch_up()
                if not text.strip():
                    continue
                if word := unknown_command(text, dialog.commands):
                    screen.note(f"{word} is not a command; it was said as a message")
                try:
                    dialog.ask(text)
                except MessageNotAccepted as exc:
                    screen.note(f"not sent: {exc}")
        except UserLeft:
            return


def _make_screen(without_terminal: type[Screen]) -> Screen:
    if sys.stdout.isatty():
        from console.chat.terminal import TerminalScreen  # here: rich is for terminals

        return TerminalScreen()
    return without_terminal()
