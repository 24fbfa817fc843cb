"""How a chat goes at a terminal: say something, watch the answer, and the next."""

from __future__ import annotations

import queue
import sys
from collections.abc import Callable
from typing import Final, NamedTuple

from console.chat.client import ChatFailed, Connected, Lost, News, Target
from console.chat.extras import ends_offers, is_silent
from console.chat.frames import Accepted, Progress, Question, Reply, Resumed, Said
from console.chat.keyboard import Keyboard
from console.chat.screen import LastWordScreen, PlainScreen, Screen
from console.chat.state import Answer, Asked, Delayed, Past, Refused, Reset, Running
from console.chat.thread import ChatThread, Ended, Interrupted
from console.chat.typed_line import by_number, unknown_command
from shared.errors import ShoalError
from shared.terminal_text import clean_line, counted

LEAVE: Final = ("/quit", "/exit")
"""What is not said to Shoal; every other line that begins with a slash is a matter of the
gateway's."""

SILENCE_S: Final = 20.0
"""After so long without a word a person is told that they may stop."""

_EXIT_CODES: Final = {"reply": 0, "stopped": 130}


class NotTaken(ShoalError):
    """Shoal did not take the message; the text says why."""


class Left(Exception):
    """The person does not wait any longer."""


class Opened(NamedTuple):
    """What the person said in this chat before, and the commands that they may say, with their
    slashes."""

    said: tuple[str, ...]
    commands: tuple[str, ...]


Decide = Callable[[str], bool | None]
"""Asks the person at this terminal for a yes or a no; None when they would not say."""


class Talk:
    """Shows what happens in a chat. With `own_only` that is what answers the messages said here,
    and nothing else.

    Without `decide` nobody here can be asked whether a tool may run: the question is told, and
    waits."""

    def __init__(self, chat: ChatThread, screen: Screen, *, own_only: bool, decide: Decide | None = None) -> None:
        self._chat = chat
        self._screen = screen
        self._own_only = own_only
        self._decide = decide
        self._own: set[str] = set()
        self._decisions: set[str] = set()
        self._question: Question | None = None
        self._own_turn = 0
        self._answered = 0
        self._noted = ""
        self._buttons: tuple[str, ...] = ()

    def open(self, history: int) -> Opened:
        """Wait until the chat is there, and for an answer that runs; show its last lines. Raises
        ChatFailed, Left."""
        said: list[str] = []
        offered: tuple[str, ...] = ()
        running = 0

        def resumed(news: News) -> bool:
            nonlocal running, offered
            match news:
                case Connected(principal=principal, again=False, commands=commands):
                    offered = commands
                    hint = "/help shows what you can ask with a slash, " if "help" in commands else ""
                    self._screen.note(f"connected as {principal}; {hint}/quit or Ctrl-D leaves")
                case Past(lines=lines):
                    said.extend(line.text for line in lines if isinstance(line, Said))
                    for line in lines[max(0, len(lines) - history) :]:
                        if isinstance(line, Said):
                            self._screen.said(line.text)
                        elif isinstance(line, Reply) and not is_silent(line):
                            self._reply(line)
                    for line in lines:
                        if isinstance(line, Question):
                            self._question = line if line.state == "open" else None
                case Resumed():
                    running = news.running or 0
                    return True
            return False

        def quiet(news: News) -> bool:
            # A turn may end while the chat is resumed, so that its reply comes first; or be lost
            # with the store's tail.
            return self._answered >= running or (isinstance(news, Resumed) and news.running is None)

        self._follow(resumed, stop=None)
        if running > self._answered:
            self._screen.waiting()
            if self._question is not None and self._question.turn == running:
                self._ask_about(self._question)
            self._follow(quiet, stop=lambda: self._chat.stop(running))
        return Opened(tuple(said), tuple(f"/{word}" for word in offered))

    def meant(self, text: str) -> str:
        """What a person says who typed this: the label of a button for its number in the agent's
        newest message."""
        label = by_number(text, self._buttons)
        if label != text:
            self._screen.said(label)
        return label

    def ask(self, text: str) -> Reply:
        """Say something, and show what comes until it is answered. Raises NotTaken, ChatFailed,
        Left."""
        id = self._chat.say(text)
        self._own.add(id)
        self._screen.waiting()
        replies: list[Reply] = []

        def answered(news: News) -> bool:
            match news:
                case Accepted(ahead=ahead, turn=turn) if news.id == id:
                    self._own_turn = turn
                    if ahead:
                        self._screen.note(f"{counted(ahead, 'message')} of this chat before it")
                case Refused(message=message) if news.id == id:
                    raise NotTaken(message)
                case Answer(reply=reply, ids=ids) if id in ids:
                    replies.append(reply)
            return bool(replies)

        self._follow(answered, stop=self._chat.stop)
        return replies[0]

    def commanded(self, reply: Reply) -> bool:
        """Whether it answers a command that was said here; else it is that of somebody's `/new`,
        and what was asked here got no answer."""
        return bool(reply.in_reply_to) and reply.in_reply_to[0] in self._own

    def catch_up(self) -> None:
        """Show what came meanwhile. Raises ChatFailed."""
        try:
            while True:
                news = self._chat.news.get_nowait()
                if not isinstance(news, Interrupted):
                    self._show(self._sound(news))
        except queue.Empty:
            self._screen.rest()

    def _follow(self, over: Callable[[News], bool], *, stop: Callable[[], None] | None) -> None:
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
                    heard = self._sound(news)
                    self._show(heard)
                    if isinstance(heard, Asked):
                        self._answer(heard.question)
                    if over(heard):
                        return
                elif stop is None:
                    raise Left
                else:
                    stop()
                    stop = None
                    self._screen.note("stopping; Ctrl-C again leaves")
        finally:
            self._screen.rest()

    def _sound(self, news: News | Ended) -> News:
        if isinstance(news, Ended):
            raise ChatFailed(news.reason)
        return news

    def _answer(self, question: Question) -> None:
        """A question came up, or was answered: by us, or on another device."""
        if self._own_only and question.turn != self._own_turn:
            return
        if question.state == "open":
            self._ask_about(question)
        elif self._question is not None and self._question.call == question.call:
            self._question = None
            self._screen.note(f"{question.state}: {question.tool}")

    def _ask_about(self, question: Question) -> None:
        self._question = question
        self._screen.rest()
        if self._decide is None:
            what = f"{question.tool} {clean_line(question.arguments)}"
            self._screen.note(f"waits for a yes to {what}; nobody here can be asked, say it on the chat page")
            return
        self._screen.reply(Reply(question.chat, question.seq, question.turn, question.text, kind="notice"))
        said = self._decide(f"run {clean_line(question.tool)}?")
        if said is None:
            self._screen.note(f"not answered; /yes {question.call} or /no {question.call} does it later")
            return
        self._decisions.add(self._chat.say(f"/{'yes' if said else 'no'} {question.call}"))
        self._screen.waiting()

    def _show(self, news: News) -> None:
        if isinstance(news, Answer) and news.reply.kind != "notice":
            self._answered = max(self._answered, news.reply.turn)
        match news:
            case Said(id=id, text=text) if id not in self._own | self._decisions and not self._own_only:
                self._screen.said(text)
            case Running(turn=turn, text=text) if self._shows(turn):
                self._screen.running(text)
            case Progress(turn=turn, text=text) if self._shows(turn):
                self._screen.progress(text)
            case Answer(reply=reply) if is_silent(reply):
                pass
            case Answer(reply=reply, ids=ids) if ids and self._decisions.issuperset(ids):
                self._screen.note(reply.text)
            case Answer(reply=reply, ids=ids) if ids or not self._own_only or (reply.said and self._shows(reply.turn)):
                self._reply(reply)
            case Lost():
                self._note("the connection is lost; trying again")
            case Connected(again=True):
                self._note("connected again")
            case Delayed(message=message):
                self._note(message)
            case Reset():
                self._note("the store lost the newest lines of this chat")
            case Refused(message=message, id=None):
                self._note(message)
            case _:
                pass

    def _reply(self, reply: Reply) -> None:
        self._screen.reply(reply)
        if ends_offers(reply):
            self._buttons = reply.buttons

    def _shows(self, turn: int) -> bool:
        return turn == self._own_turn or not self._own_only

    def _note(self, text: str) -> None:
        if text != self._noted:
            self._noted = text
            self._screen.note(text)


def ask_once(target: Target, chat: str, text: str, *, as_json: bool, patience_s: float) -> int:
    """Send one message and show its answer; the exit code. Raises NotTaken, ChatFailed."""
    screen = LastWordScreen(as_json=True) if as_json else _screen(last_word=True)
    with ChatThread(target, chat, patience_s=patience_s) as line, Keyboard(line.interrupt) as keyboard:
        try:
            talk = Talk(line, screen, own_only=True, decide=None if as_json else _decide(keyboard))
            reply = talk.ask(text)
        except Left:
            return _EXIT_CODES["stopped"]
    if reply.kind == "command":
        return 0 if talk.commanded(reply) else 1
    return _EXIT_CODES.get(reply.kind, 1)


def converse(target: Target, chat: str, *, history: int) -> None:
    """Talk until the person leaves. Raises ChatFailed."""
    screen = _screen(last_word=False)
    with ChatThread(target, chat) as line, Keyboard(line.interrupt) as keyboard:
        talk = Talk(line, screen, own_only=False, decide=_decide(keyboard))
        try:
            opened = talk.open(history)
            keyboard.remember(opened.said)
            keyboard.offer((*opened.commands, *LEAVE))
            while (text := keyboard.line()) is not None and text.strip() not in LEAVE:
                text = talk.meant(text)
                talk.catch_up()
                if text.strip():
                    if word := unknown_command(text, opened.commands):
                        screen.note(f"{word} is no command; it was said as a message")
                    try:
                        talk.ask(text)
                    except NotTaken as exc:
                        screen.note(f"not sent: {exc}")
        except Left:
            return


def _decide(keyboard: Keyboard) -> Decide | None:
    """The person at this terminal, if there is one."""
    return keyboard.confirm if sys.stdin.isatty() and sys.stderr.isatty() else None


def _screen(*, last_word: bool) -> Screen:
    if sys.stdout.isatty():
        from console.chat.terminal import TerminalScreen  # here: rich is for terminals

        return TerminalScreen()
    return LastWordScreen(as_json=False) if last_word else PlainScreen()
