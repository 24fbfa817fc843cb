"""A chat at a terminal: send a message, follow the answer, send the next.

Longer than most files, because the dialog is one state machine over the events of a chat.
"""

from __future__ import annotations

import queue
import sys
from collections.abc import Callable
from typing import Final

from console.chat.client import (
    ChatEnded,
    ChatFailed,
    ChatThread,
    ClientEvent,
    Connected,
    GatewayTarget,
    Interrupted,
    Lost,
)
from console.chat.keyboard import TerminalInput, button_by_number, unknown_command
from console.chat.screen import JsonScreen, PlainScreen, Screen, ends_offers, is_silent
from console.chat.state import (
    ApprovalEvent,
    GrowingReply,
    LinesLost,
    MessageRefused,
    OpeningLines,
    ReplyEvent,
    RetryLater,
)
from shared.errors import ShoalError
from shared.messages.web import AcceptedFrame, ApprovalFrame, MessageFrame, ProgressFrame, ReplyFrame, ResumedFrame
from shared.terminal_text import clean_line, counted

LEAVE: Final = ("/quit", "/exit")
"""Handled here; every other line that begins with a slash goes to the gateway."""

SILENCE_S: Final = 20.0
"""After this time without an event the person gets a hint that Ctrl-C stops the turn."""

_EXIT_CODES: Final = {"reply": 0, "stopped": 130}


class MessageNotAccepted(ShoalError):
    """The gateway refused the message; the text says why."""


class UserLeft(Exception):
    """The person stopped waiting."""


AskPerson = Callable[[str], bool | None]
"""Asks the person at this terminal for yes or no; returns None without an answer."""


class ChatDialog:
    """Shows what happens in a chat; with `own_only` only answers to messages sent from here.

    `decide` asks the person here whether a tool may run. Without it the request is shown, and waits
    for a decision elsewhere.
    """

    def __init__(self, chat: ChatThread, screen: Screen, *, own_only: bool, decide: AskPerson | None = None) -> None:
        self._chat = chat
        self._screen = screen
        self._own_only = own_only
        self._decide = decide
        self.own_texts: list[str] = []
        """The person's earlier messages in this chat; set by `open`."""

        self.commands: tuple[str, ...] = ()
        """The gateway's commands, with their slashes; set by `open`."""

        self._own: set[str] = set()
        self._decisions: set[str] = set()
        self._approval: ApprovalFrame | None = None
        self._own_turn = 0
        self._answered = 0
        self._noted = ""
        self._buttons: tuple[str, ...] = ()

    def open(self, history: int) -> None:
        """Wait for the connection, show the last lines, and wait for a turn that runs. Raises
        ChatFailed, UserLeft."""
        running = 0

        def resumed(event: ClientEvent) -> bool:
            nonlocal running
            match event:
                case Connected(principal=principal, again=False, commands=commands):
                    self.commands = tuple(f"/{word}" for word in commands)
                    hint = "/help shows what you can ask with a slash, " if "help" in commands else ""
                    self._screen.note(f"connected as {principal}; {hint}/quit or Ctrl-D leaves")
                case OpeningLines(lines=lines):
                    self.own_texts.extend(line.text for line in lines if isinstance(line, MessageFrame))
                    for line in lines[max(0, len(lines) - history) :]:
                        if isinstance(line, MessageFrame):
                            self._screen.user_message(line.text)
                        elif isinstance(line, ReplyFrame) and not is_silent(line):
                            self._render_reply(line)
                    for line in lines:
                        if isinstance(line, ApprovalFrame):
                            self._approval = line if line.state == "open" else None
                case ResumedFrame():
                    running = event.running or 0
                    return True
            return False

        def quiet(event: ClientEvent) -> bool:
            # A turn may end while the chat is resumed, so that its reply comes first; or be lost
            # with the store's tail.
            return self._answered >= running or (isinstance(event, ResumedFrame) and event.running is None)

        self._follow(resumed, stop=None)
        if running > self._answered:
            self._screen.waiting()
            if self._approval is not None and self._approval.turn == running:
                self._ask_approval(self._approval)
            self._follow(quiet, stop=lambda: self._chat.stop(running))

    def expand_number(self, text: str) -> str:
        """Return the label of a button for its number in the agent's newest message, else
        `text`."""
        label = button_by_number(text, self._buttons)
        if label != text:
            self._screen.user_message(label)
        return label

    def ask(self, text: str) -> ReplyFrame:
        """Send a message, and show events until it is answered. Raises MessageNotAccepted,
        ChatFailed, UserLeft."""
        id = self._chat.send_message(text)
        self._own.add(id)
        self._screen.waiting()
        replies: list[ReplyFrame] = []

        def answered(event: ClientEvent) -> bool:
            match event:
                case AcceptedFrame(ahead=ahead, turn=turn) if event.id == id:
                    self._own_turn = turn
                    if ahead:
                        self._screen.note(f"{counted(ahead, 'message')} of this chat before it")
                case MessageRefused(message=message) if event.id == id:
                    raise MessageNotAccepted(message)
                case ReplyEvent(reply=reply, ids=ids) if id in ids:
                    replies.append(reply)
            return bool(replies)

        self._follow(answered, stop=self._chat.stop)
        return replies[0]

    def answers_own_command(self, reply: ReplyFrame) -> bool:
        """Return whether a reply answers a command sent from here. If not, it belongs to a `/new`
        of another client, which dropped the message from here."""
        return bool(reply.in_reply_to) and reply.in_reply_to[0] in self._own

    def catch_up(self) -> None:
        """Show the events that came while the person typed. Raises ChatFailed."""
        try:
            while True:
                event = self._chat.events.get_nowait()
                if not isinstance(event, Interrupted):
                    self._render(event)
        except queue.Empty:
            self._screen.rest()

    def _follow(self, over: Callable[[ClientEvent], bool], *, stop: Callable[[], None] | None) -> None:
        """Show events until `over` returns True. The first Ctrl-C calls `stop`; the second, or the
        first without `stop`, leaves."""
        hint_after_s = None if self._own_only or stop is None else SILENCE_S
        try:
            while True:
                try:
                    event = self._chat.events.get(timeout=hint_after_s)
                except queue.Empty:
                    hint_after_s = None
                    self._screen.note("no word yet; Ctrl-C stops what was asked, and again leaves it to come later")
                    continue
                if not isinstance(event, Interrupted):
                    self._render(event)
                    if isinstance(event, ApprovalEvent):
                        self._on_approval(event.approval)
                    if over(event):
                        return
                elif stop is None:
                    raise UserLeft
                else:
                    stop()
                    stop = None
                    self._screen.note("stopping; Ctrl-C again leaves")
        finally:
            self._screen.rest()

    def _on_approval(self, approval: ApprovalFrame) -> None:
        """Handle a request to run a tool, or its outcome, decided here or on another device."""
        if self._own_only and approval.turn != self._own_turn:
            return
        if approval.state == "open":
            self._ask_approval(approval)
        elif self._approval is not None and self._approval.call == approval.call:
            self._approval = None
            self._screen.note(f"{approval.state}: {approval.tool}")

    def _ask_approval(self, approval: ApprovalFrame) -> None:
        self._approval = approval
        self._screen.rest()
        if self._decide is None:
            what = f"{approval.tool} {clean_line(approval.arguments)}"
            self._screen.note(f"waits for a yes to {what}; nobody here can be asked, say it on the chat page")
            return
        self._screen.reply(ReplyFrame(approval.chat, approval.seq, approval.turn, approval.text, "", (), "notice", 0))
        decision = self._decide(f"run {clean_line(approval.tool)}?")
        if decision is None:
            self._screen.note(f"not answered; /yes {approval.call} or /no {approval.call} does it later")
            return
        self._decisions.add(self._chat.send_message(f"/{'yes' if decision else 'no'} {approval.call}"))
        self._screen.waiting()

    def _render(self, event: ClientEvent) -> None:
        if isinstance(event, ReplyEvent) and event.reply.kind != "notice":
            self._answered = max(self._answered, event.reply.turn)
        match event:
            case MessageFrame(id=id, text=text) if id not in self._own | self._decisions and not self._own_only:
                self._screen.user_message(text)
            case GrowingReply(turn=turn, text=text) if self._is_shown(turn):
                self._screen.running(text)
            case ProgressFrame(turn=turn, text=text) if self._is_shown(turn):
                self._screen.progress(text)
            case ReplyEvent(reply=reply) if is_silent(reply):
                pass
            case ReplyEvent(reply=reply, ids=ids) if ids and self._decisions.issuperset(ids):
                self._screen.note(reply.text)
            case ReplyEvent(reply=reply, ids=ids) if (
                ids or not self._own_only or (reply.sent_by_tool and self._is_shown(reply.turn))
            ):
                self._render_reply(reply)
            case ChatEnded(reason=reason):
                raise ChatFailed(reason)
            case Lost():
                self._note_once("the connection is lost; trying again")
            case Connected(again=True):
                self._note_once("connected again")
            case RetryLater(message=message):
                self._note_once(message)
            case LinesLost():
                self._note_once("the store lost the newest lines of this chat")
            case MessageRefused(message=message, id=None):
                self._note_once(message)
            case _:
                pass

    def _render_reply(self, reply: ReplyFrame) -> None:
        self._screen.reply(reply)
        if ends_offers(reply):
            self._buttons = tuple(reply.buttons)

    def _is_shown(self, turn: int) -> bool:
        return turn == self._own_turn or not self._own_only

    def _note_once(self, text: str) -> None:
        if text != self._noted:
            self._noted = text
            self._screen.note(text)


def ask_once(target: GatewayTarget, chat: str, text: str, *, as_json: bool, patience_s: float) -> int:
    """Send one message, show its answer, and return the exit code. Raises MessageNotAccepted,
    ChatFailed."""
    screen = JsonScreen() if as_json else _make_screen(final_only=True)
    with (
        ChatThread(target, chat, patience_s=patience_s) as chat_thread,
        TerminalInput(chat_thread.interrupt) as keyboard,
    ):
        try:
            dialog = ChatDialog(
                chat_thread, screen, own_only=True, decide=None if as_json else _confirm_at_terminal(keyboard)
            )
            reply = dialog.ask(text)
        except UserLeft:
            return _EXIT_CODES["stopped"]
    if reply.kind == "command":
        return 0 if dialog.answers_own_command(reply) else 1
    return _EXIT_CODES.get(reply.kind, 1)


def converse(target: GatewayTarget, chat: str, *, history: int) -> None:
    """Chat until the person leaves. Raises ChatFailed."""
    screen = _make_screen(final_only=False)
    with ChatThread(target, chat) as chat_thread, TerminalInput(chat_thread.interrupt) as keyboard:
        dialog = ChatDialog(chat_thread, screen, own_only=False, decide=_confirm_at_terminal(keyboard))
        try:
            dialog.open(history)
            keyboard.add_history(dialog.own_texts)
            keyboard.complete_words((*dialog.commands, *LEAVE))
            while (text := keyboard.read_line()) is not None and text.strip() not in LEAVE:
                text = dialog.expand_number(text)
                dialog.catch_up()
                if text.strip():
                    if word := unknown_command(text, dialog.commands):
                        screen.note(f"{word} is no command; it was said as a message")
                    try:
                        dialog.ask(text)
                    except MessageNotAccepted as exc:
                        screen.note(f"not sent: {exc}")
        except UserLeft:
            return


def _confirm_at_terminal(keyboard: TerminalInput) -> AskPerson | None:
    """Return the way to ask the person; None without a terminal."""
    return keyboard.confirm if sys.stdin.isatty() and sys.stderr.isatty() else None


def _make_screen(*, final_only: bool) -> Screen:
    if sys.stdout.isatty():
        from console.chat.terminal import TerminalScreen  # here: rich is for terminals

        return TerminalScreen()
    return Screen() if final_only else PlainScreen()
