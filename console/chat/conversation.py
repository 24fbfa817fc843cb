"""A chat at a terminal: send a message, follow the answer, send the next."""

from __future__ import annotations

import queue
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Final

from console.chat.client import ChatClient, ChatEnded, ChatFailed, ClientEvent, Connected, Interrupted
from console.chat.keyboard import TerminalInput
from console.chat.screen import JsonScreen, PlainScreen, Screen, is_silent
from console.chat.state import ChatNote, GrowingReply, MessageRefused, OpeningLines, ReplyEvent
from shared.errors import ShoalError
from shared.messages import web
from shared.messages.web import ApprovalFrame, MessageFrame, ReplyFrame
from shared.terminal_text import clean_line, counted

LEAVE: Final = ("/quit", "/exit")
"""Handled here; every other line that begins with a slash goes to the gateway."""

SILENCE_S: Final = 20.0
"""After this time without an event the person gets a hint that Ctrl-C stops the turn."""


class MessageNotAccepted(ShoalError):
    """The gateway refused the message; the text says why."""


class UserLeft(Exception):
    """The person stopped waiting."""


@dataclass(eq=False)
class ChatDialog:
    """Shows what happens in a chat; with `own_only` only answers to messages sent from here.

    `decide` asks the person here whether a tool may run; it returns None without an answer. Without
    it the request is shown, and waits for a decision elsewhere.
    """

    chat: ChatClient
    screen: Screen
    _: KW_ONLY
    own_only: bool
    decide: Callable[[str], bool | None] | None = None
    own_texts: list[str] = field(default_factory=list)
    """The person's earlier messages in this chat; set by `open`."""

    commands: tuple[str, ...] = ()
    """The gateway's commands, with their slashes; set by `open`."""

    _own: set[str] = field(default_factory=set)
    _decisions: set[str] = field(default_factory=set)
    _approval: ApprovalFrame | None = None
    _own_turn: int = 0
    _answered: int = 0
    _noted: str = ""
    _buttons: Sequence[str] = ()

    def open(self, history: int) -> None:
        """Show the last lines, and wait for a turn that runs. Raises ChatFailed, UserLeft."""
        running = 0

        def resumed(event: ClientEvent) -> bool:
            nonlocal running
            match event:
                case Connected(principal=principal, commands=commands):
                    self.commands = tuple(f"/{word}" for word in commands)
                    hint = "/help shows what you can ask with a slash, " if "help" in commands else ""
                    self.screen.note(f"connected as {principal}; {hint}/quit or Ctrl-D leaves")
                case OpeningLines(lines=lines):
                    self._show_opening(lines, history)
                case web.ResumedFrame():
                    running = event.running or 0
                    return True
            return False

        def quiet(event: ClientEvent) -> bool:
            # A turn may end while the chat is resumed, so that its reply comes first; or be lost
            # with the store's tail.
            lost = isinstance(event, web.ResumedFrame) and event.running is None
            return lost or self._answered >= running

        self._follow(resumed, stop=None)
        if running > self._answered:
            self.screen.running("")
            if self._approval is not None and self._approval.turn == running:
                self._ask_approval(self._approval)
            self._follow(quiet, stop=lambda: self.chat.stop(running))

    def expand_number(self, text: str) -> str:
        """Return a button's label for its number in the agent's newest message, else `text`."""
        label = button_by_number(text, self._buttons)
        if label != text:
            self.screen.user_message(label)
        return label

    def ask(self, text: str) -> ReplyFrame:
        """Send a message, wait for its answer. Raises MessageNotAccepted, ChatFailed, UserLeft."""
        id = self.chat.send_message(text)
        self._own.add(id)
        self.screen.running("")
        replies: list[ReplyFrame] = []

        def answered(event: ClientEvent) -> bool:
            match event:
                case web.AcceptedFrame(ahead=ahead, turn=turn) if event.id == id:
                    self._own_turn = turn
                    if ahead:
                        self.screen.note(f"{counted(ahead, 'message')} of this chat before it")
                case MessageRefused(reason=reason) if event.id == id:
                    raise MessageNotAccepted(reason)
                case ReplyEvent(reply=reply, ids=ids) if id in ids:
                    replies.append(reply)
            return bool(replies)

        self._follow(answered, stop=self.chat.stop)
        return replies[0]

    def exit_code(self, reply: ReplyFrame) -> int:
        """Return the exit code for a reply to `ask`."""
        if reply.kind == "command":
            # One to a message that is not from here belongs to a `/new` of another client, which
            # dropped the message from here.
            return 0 if reply.in_reply_to and reply.in_reply_to[0] in self._own else 1
        return {"reply": 0, "stopped": 130}.get(reply.kind, 1)

    def catch_up(self) -> None:
        """Show the events that came while the person typed. Raises ChatFailed."""
        while not self.chat.events.empty():
            self._render(self.chat.events.get())
        self.screen.rest()

    def _show_opening(self, lines: Sequence[web.LineFrame], history: int) -> None:
        for at, line in enumerate(lines):
            shown = at >= len(lines) - history
            if isinstance(line, MessageFrame):
                self.own_texts.append(line.text)
                if shown:
                    self.screen.user_message(line.text)
            elif isinstance(line, ApprovalFrame):
                self._approval = line if line.state == "open" else None
            elif shown and not is_silent(line):
                self._render_reply(line)

    def _follow(self, over: Callable[[ClientEvent], bool], *, stop: Callable[[], None] | None) -> None:
        """Show events until `over` returns True. The first Ctrl-C calls `stop`; the second, or the
        first without `stop`, leaves."""
        hint_after_s = None if self.own_only or stop is None else SILENCE_S
        try:
            while True:
                try:
                    event = self.chat.events.get(timeout=hint_after_s)
                except queue.Empty:
                    hint_after_s = None
                    hint = "Ctrl-C stops what was asked, and again leaves it to come later"
                    self.screen.note(f"no word yet; {hint}")
                    continue
                if not isinstance(event, Interrupted):
                    self._render(event)
                    if isinstance(event, ApprovalFrame):
                        self._on_approval(event)
                    if over(event):
                        return
                elif stop is None:
                    raise UserLeft
                else:
                    stop()
                    stop = None
                    self.screen.note("stopping; Ctrl-C again leaves")
        finally:
            self.screen.rest()

    def _on_approval(self, approval: ApprovalFrame) -> None:
        """Handle a request to run a tool, or its outcome, decided here or on another device."""
        if self.own_only and approval.turn != self._own_turn:
            return
        if approval.state == "open":
            self._ask_approval(approval)
        elif self._approval is not None and self._approval.call == approval.call:
            self._approval = None
            self.screen.note(f"{approval.state}: {approval.tool}")

    def _ask_approval(self, approval: ApprovalFrame) -> None:
        self._approval = approval
        self.screen.rest()
        if self.decide is None:
            what = f"{approval.tool} {clean_line(approval.arguments)}"
            where = "nobody here can be asked, say it on the chat page"
            self.screen.note(f"waits for a yes to {what}; {where}")
            return
        chat, turn, call = approval.chat, approval.turn, approval.call
        self.screen.reply(ReplyFrame(chat, approval.seq, turn, approval.text, "", (), "notice", 0))
        decision = self.decide(f"run {clean_line(approval.tool)}?")
        if decision is None:
            self.screen.note(f"not answered; /yes {call} or /no {call} does it later")
            return
        self._decisions.add(self.chat.send_message(f"/{'yes' if decision else 'no'} {call}"))
        self.screen.running("")

    def _render(self, event: ClientEvent) -> None:
        match event:
            case MessageFrame(id=id, text=text) if not self.own_only and id not in self._own | self._decisions:
                self.screen.user_message(text)
            case GrowingReply(turn=turn, text=text) if self._is_shown(turn):
                self.screen.running(text)
            case web.ProgressFrame(turn=turn, text=text) if self._is_shown(turn):
                self.screen.progress(text)
            case ReplyEvent(reply=reply, ids=ids):
                if reply.kind != "notice":
                    self._answered = max(self._answered, reply.turn)
                sent_to_us = ids or (reply.sent_by_tool and self._is_shown(reply.turn))
                if is_silent(reply):
                    return
                if ids and self._decisions.issuperset(ids):
                    self.screen.note(reply.text)
                elif sent_to_us or not self.own_only:
                    self._render_reply(reply)
            # A gateway may be lost again and again.
            case ChatNote(text=text) if text != self._noted:
                self._noted = text
                self.screen.note(text)
            case ChatEnded(reason=reason):
                raise ChatFailed(reason)

    def _render_reply(self, reply: ReplyFrame) -> None:
        """Show a reply. It ends the suggested answers before it if the agent sent it, or if it is
        that of a command which ended all turns; notices and other commands leave them."""
        self.screen.reply(reply)
        keeps = reply.turn == 0 if reply.kind == "command" else reply.kind == "notice"
        if reply.sent_by_tool or not keeps:
            self._buttons = reply.buttons

    def _is_shown(self, turn: int) -> bool:
        return turn == self._own_turn or not self.own_only


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
    screen = _make_screen(PlainScreen)
    with ChatClient(url, token, chat) as client, TerminalInput(client.interrupt) as keyboard:
        decide = keyboard.confirm if keyboard.answers else None
        dialog = ChatDialog(client, screen, own_only=False, decide=decide)
        try:
            dialog.open(history)
            keyboard.prepare(dialog.own_texts, (*dialog.commands, *LEAVE))
            while (text := keyboard.read_line()) is not None and text.strip() not in LEAVE:
                text = dialog.expand_number(text)
                dialog.catch_up()
                if not text.strip():
                    continue
                if word := unknown_command(text, dialog.commands):
                    screen.note(f"{word} is no command; it was said as a message")
                try:
                    dialog.ask(text)
                except MessageNotAccepted as exc:
                    screen.note(f"not sent: {exc}")
        except UserLeft:
            return


def button_by_number(text: str, buttons: Sequence[str]) -> str:
    """Return the label of the button whose number is all of `text`; else `text`."""
    typed = text.strip()
    number = int(typed) if re.fullmatch("[1-9][0-9]?", typed) else 0
    return buttons[number - 1] if 1 <= number <= len(buttons) else text


def unknown_command(text: str, commands: Sequence[str]) -> str:
    """Return the `/word` at the beginning that looks like a command but is not one; else `""`."""
    word = text.split(maxsplit=1)[0]
    looks = bool(commands) and re.fullmatch(r"/\w+", word) is not None
    return word if looks and word.lower() not in commands else ""


def _make_screen(without_terminal: type[Screen]) -> Screen:
    if sys.stdout.isatty():
        from console.chat.terminal import TerminalScreen  # here: rich is for terminals

        return TerminalScreen()
    return without_terminal()
