"""How a chat goes at a terminal: say something, watch the answer, and the next."""

from __future__ import annotations

import queue
import sys
from collections.abc import Callable
from typing import Final, NamedTuple

from console.chat.client import ChatFailed, ClientEvent, Connected, GatewayTarget, Lost
from console.chat.extras import ends_offers, is_silent
from console.chat.keyboard import TerminalInput
from console.chat.screen import FinalReplyScreen, PlainScreen, Screen
from console.chat.state import (
    ApprovalEvent,
    GrowingReply,
    LinesLost,
    MessageRefused,
    OpeningLines,
    ReplyEvent,
    RetryLater,
)
from console.chat.thread import ChatEnded, ChatThread, Interrupted
from console.chat.typed_line import button_by_number, unknown_command
from shared.errors import ShoalError
from shared.messages.web import AcceptedFrame, ApprovalFrame, MessageFrame, ProgressFrame, ReplyFrame, ResumedFrame
from shared.terminal_text import clean_line, counted

LEAVE: Final = ("/quit", "/exit")
"""What is not said to Shoal; every other line that begins with a slash is a matter of the
gateway's."""

SILENCE_S: Final = 20.0
"""After so long without a word a person is told that they may stop."""

_EXIT_CODES: Final = {"reply": 0, "stopped": 130}


class MessageNotAccepted(ShoalError):
    """Shoal did not take the message; the text says why."""


class UserLeft(Exception):
    """The person does not wait any longer."""


class OpenedChat(NamedTuple):
    """What the person said in this chat before, and the commands that they may say, with their
    slashes."""

    own_texts: tuple[str, ...]
    commands: tuple[str, ...]


AskPerson = Callable[[str], bool | None]
"""Asks the person at this terminal for a yes or a no; None when they would not say."""


class ChatDialog:
    """Shows what happens in a chat. With `own_only` that is what answers the messages said here,
    and nothing else.

    Without `decide` nobody here can be asked whether a tool may run: the question is told, and
    waits."""

    def __init__(self, chat: ChatThread, screen: Screen, *, own_only: bool, decide: AskPerson | None = None) -> None:
        self._chat = chat
        self._screen = screen
        self._own_only = own_only
        self._decide = decide
        self._own: set[str] = set()
        self._decisions: set[str] = set()
        self._question: ApprovalFrame | None = None
        self._own_turn = 0
        self._answered = 0
        self._noted = ""
        self._buttons: tuple[str, ...] = ()

    def open(self, history: int) -> OpenedChat:
        """Wait until the chat is there, and for an answer that runs; show its last lines. Raises
        ChatFailed, Left."""
        own_texts: list[str] = []
        offered: tuple[str, ...] = ()
        running = 0

        def resumed(news: ClientEvent) -> bool:
            nonlocal running, offered
            match news:
                case Connected(principal=principal, again=False, commands=commands):
                    offered = commands
                    hint = "/help shows what you can ask with a slash, " if "help" in commands else ""
                    self._screen.note(f"connected as {principal}; {hint}/quit or Ctrl-D leaves")
                case OpeningLines(lines=lines):
                    own_texts.extend(line.text for line in lines if isinstance(line, MessageFrame))
                    for line in lines[max(0, len(lines) - history) :]:
                        if isinstance(line, MessageFrame):
                            self._screen.user_message(line.text)
                        elif isinstance(line, ReplyFrame) and not is_silent(line):
                            self._render_reply(line)
                    for line in lines:
                        if isinstance(line, ApprovalFrame):
                            self._question = line if line.state == "open" else None
                case ResumedFrame():
                    running = news.running or 0
                    return True
            return False

        def quiet(news: ClientEvent) -> bool:
            # A turn may end while the chat is resumed, so that its reply comes first; or be lost
            # with the store's tail.
            return self._answered >= running or (isinstance(news, ResumedFrame) and news.running is None)

        self._follow(resumed, stop=None)
        if running > self._answered:
            self._screen.waiting()
            if self._question is not None and self._question.turn == running:
                self._ask_approval(self._question)
            self._follow(quiet, stop=lambda: self._chat.stop(running))
        return OpenedChat(tuple(own_texts), tuple(f"/{word}" for word in offered))

    def expand_number(self, text: str) -> str:
        """What a person says who typed this: the label of a button for its number in the agent's
        newest message."""
        label = button_by_number(text, self._buttons)
        if label != text:
            self._screen.user_message(label)
        return label

    def ask(self, text: str) -> ReplyFrame:
        """Say something, and show what comes until it is answered. Raises NotTaken, ChatFailed,
        Left."""
        id = self._chat.send_message(text)
        self._own.add(id)
        self._screen.waiting()
        replies: list[ReplyFrame] = []

        def answered(news: ClientEvent) -> bool:
            match news:
                case AcceptedFrame(ahead=ahead, turn=turn) if news.id == id:
                    self._own_turn = turn
                    if ahead:
                        self._screen.note(f"{counted(ahead, 'message')} of this chat before it")
                case MessageRefused(message=message) if news.id == id:
                    raise MessageNotAccepted(message)
                case ReplyEvent(reply=reply, ids=ids) if id in ids:
                    replies.append(reply)
            return bool(replies)

        self._follow(answered, stop=self._chat.stop)
        return replies[0]

    def answers_own_command(self, reply: ReplyFrame) -> bool:
        """Whether it answers a command that was said here; else it is that of somebody's `/new`,
        and what was asked here got no answer."""
        return bool(reply.in_reply_to) and reply.in_reply_to[0] in self._own

    def catch_up(self) -> None:
        """Show what came meanwhile. Raises ChatFailed."""
        try:
            while True:
                news = self._chat.news.get_nowait()
                if not isinstance(news, Interrupted):
                    self._render(self._check_ended(news))
        except queue.Empty:
            self._screen.rest()

    def _follow(self, over: Callable[[ClientEvent], bool], *, stop: Callable[[], None] | None) -> None:
        """Show what comes until `over` says so. The first Ctrl-C calls `stop`; the next, or without
        it any, leaves."""
        hint_after_s = None if self._own_only or stop is None else SILENCE_S
        try:
            while True:
                try:
                    news = self._chat.news.get(timeout=hint_after_s)
                except queue.Empty:
                    hint_after_s = None
                    self._screen.note("no word yet; Ctrl-C stops what was asked, and again leaves it to come later")
                    continue
                if not isinstance(news, Interrupted):
                    event = self._check_ended(news)
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

    def _check_ended(self, news: ClientEvent | ChatEnded) -> ClientEvent:
        if isinstance(news, ChatEnded):
            raise ChatFailed(news.reason)
        return news

    def _on_approval(self, question: ApprovalFrame) -> None:
        """A question came up, or was answered: by us, or on another device."""
        if self._own_only and question.turn != self._own_turn:
            return
        if question.state == "open":
            self._ask_approval(question)
        elif self._question is not None and self._question.call == question.call:
            self._question = None
            self._screen.note(f"{question.state}: {question.tool}")

    def _ask_approval(self, question: ApprovalFrame) -> None:
        self._question = question
        self._screen.rest()
        if self._decide is None:
            what = f"{question.tool} {clean_line(question.arguments)}"
            self._screen.note(f"waits for a yes to {what}; nobody here can be asked, say it on the chat page")
            return
        self._screen.reply(ReplyFrame(question.chat, question.seq, question.turn, question.text, "", (), "notice", 0))
        decision = self._decide(f"run {clean_line(question.tool)}?")
        if decision is None:
            self._screen.note(f"not answered; /yes {question.call} or /no {question.call} does it later")
            return
        self._decisions.add(self._chat.send_message(f"/{'yes' if decision else 'no'} {question.call}"))
        self._screen.waiting()

    def _render(self, news: ClientEvent) -> None:
        if isinstance(news, ReplyEvent) and news.reply.kind != "notice":
            self._answered = max(self._answered, news.reply.turn)
        match news:
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
    """Send one message and show its answer; the exit code. Raises NotTaken, ChatFailed."""
    screen = FinalReplyScreen(as_json=True) if as_json else _make_screen(last_word=True)
    with ChatThread(target, chat, patience_s=patience_s) as line, TerminalInput(line.interrupt) as keyboard:
        try:
            talk = ChatDialog(line, screen, own_only=True, decide=None if as_json else _confirm_at_terminal(keyboard))
            reply = talk.ask(text)
        except UserLeft:
            return _EXIT_CODES["stopped"]
    if reply.kind == "command":
        return 0 if talk.answers_own_command(reply) else 1
    return _EXIT_CODES.get(reply.kind, 1)


def converse(target: GatewayTarget, chat: str, *, history: int) -> None:
    """Talk until the person leaves. Raises ChatFailed."""
    screen = _make_screen(last_word=False)
    with ChatThread(target, chat) as line, TerminalInput(line.interrupt) as keyboard:
        talk = ChatDialog(line, screen, own_only=False, decide=_confirm_at_terminal(keyboard))
        try:
            opened = talk.open(history)
            keyboard.add_history(opened.own_texts)
            keyboard.complete_words((*opened.commands, *LEAVE))
            while (text := keyboard.read_line()) is not None and text.strip() not in LEAVE:
                text = talk.expand_number(text)
                talk.catch_up()
                if text.strip():
                    if word := unknown_command(text, opened.commands):
                        screen.note(f"{word} is no command; it was said as a message")
                    try:
                        talk.ask(text)
                    except MessageNotAccepted as exc:
                        screen.note(f"not sent: {exc}")
        except UserLeft:
            return


def _confirm_at_terminal(keyboard: TerminalInput) -> AskPerson | None:
    """The person at this terminal, if there is one."""
    return keyboard.confirm if sys.stdin.isatty() and sys.stderr.isatty() else None


def _make_screen(*, last_word: bool) -> Screen:
    if sys.stdout.isatty():
        from console.chat.terminal import TerminalScreen  # here: rich is for terminals

        return TerminalScreen()
    return FinalReplyScreen(as_json=False) if last_word else PlainScreen()
