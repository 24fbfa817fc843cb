"""How a chat goes at a terminal: say something, watch the answer, and the next."""

from __future__ import annotations

import queue
import sys
from collections.abc import Callable
from typing import Final

from shared.console.chat_client import ChatFailed, Connected, Lost, News, Target
from shared.console.chat_frames import Accepted, Progress, Reply, Resumed, Said
from shared.console.chat_keyboard import Keyboard
from shared.console.chat_screen import LastWordScreen, PlainScreen, Screen
from shared.console.chat_state import Answer, Delayed, Past, Refused, Reset, Running
from shared.console.chat_thread import ChatThread, Ended, Interrupted
from shared.console.plain import counted
from shared.errors import ShoalError

_EXIT_CODES: Final = {"reply": 0, "stopped": 130}


class NotTaken(ShoalError):
    """Shoal did not take the message; the text says why."""


class Left(Exception):
    """The person does not wait any longer."""


class Talk:
    """Shows what happens in a chat. With `own_only` that is what answers the messages said here, and nothing else."""

    def __init__(self, chat: ChatThread, screen: Screen, *, own_only: bool) -> None:
        self._chat = chat
        self._screen = screen
        self._own_only = own_only
        self._own: set[str] = set()
        self._own_turn = 0
        self._answered = 0
        self._noted = ""

    def open(self, history: int) -> list[str]:
        """Wait until the chat is there, and for an answer that runs; show its last lines. What the person said before.

        Raises ChatFailed, Left.
        """
        said: list[str] = []
        running = 0

        def resumed(news: News) -> bool:
            nonlocal running
            match news:
                case Connected(principal=principal, again=False):
                    self._screen.note(f"connected as {principal}; Ctrl-D leaves")
                case Past(lines=lines):
                    said.extend(line.text for line in lines if isinstance(line, Said))
                    for line in lines[max(0, len(lines) - history) :]:
                        if isinstance(line, Said):
                            self._screen.said(line.text)
                        else:
                            self._screen.reply(line)
                case Resumed():
                    running = news.running or 0
                    return True
            return False

        def quiet(news: News) -> bool:
            # A turn may end while the chat is resumed, so that its reply comes first; or be lost with the store's tail.
            return self._answered >= running or (isinstance(news, Resumed) and news.running is None)

        self._follow(resumed, stop=None)
        if running > self._answered:
            self._screen.waiting()
            self._follow(quiet, stop=lambda: self._chat.stop(running))
        return said

    def ask(self, text: str) -> Reply:
        """Say something, and show what comes until it is answered. Raises NotTaken, ChatFailed, Left."""
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
        """Show what comes until `over` says so. The first Ctrl-C calls `stop`; the next, or without it any, leaves."""
        try:
            while True:
                news = self._chat.news.get()
                if not isinstance(news, Interrupted):
                    heard = self._sound(news)
                    self._show(heard)
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

    def _show(self, news: News) -> None:
        if isinstance(news, Answer) and news.reply.kind != "notice":
            self._answered = max(self._answered, news.reply.turn)
        match news:
            case Said(id=id, text=text) if id not in self._own and not self._own_only:
                self._screen.said(text)
            case Running(turn=turn, text=text) if self._shows(turn):
                self._screen.running(text)
            case Progress(turn=turn, text=text) if self._shows(turn):
                self._screen.progress(text)
            case Answer(reply=reply, ids=ids) if ids or not self._own_only:
                self._screen.reply(reply)
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

    def _shows(self, turn: int) -> bool:
        return turn == self._own_turn or not self._own_only

    def _note(self, text: str) -> None:
        if text != self._noted:
            self._noted = text
            self._screen.note(text)


def ask_once(target: Target, chat: str, text: str, *, as_json: bool, patience_s: float) -> int:
    """Send one message and show its answer; the exit code. Raises NotTaken, ChatFailed."""
    screen = LastWordScreen(as_json=True) if as_json else _screen(last_word=True)
    with ChatThread(target, chat, patience_s=patience_s) as line, Keyboard(line.interrupt):
        try:
            reply = Talk(line, screen, own_only=True).ask(text)
        except Left:
            return _EXIT_CODES["stopped"]
    return _EXIT_CODES.get(reply.kind, 1)


def converse(target: Target, chat: str, *, history: int) -> None:
    """Talk until the person leaves. Raises ChatFailed."""
    screen = _screen(last_word=False)
    with ChatThread(target, chat) as line, Keyboard(line.interrupt) as keyboard:
        talk = Talk(line, screen, own_only=False)
        try:
            keyboard.remember(talk.open(history))
            while (text := keyboard.line()) is not None:
                talk.catch_up()
                if text.strip():
                    try:
                        talk.ask(text)
                    except NotTaken as exc:
                        screen.note(f"not sent: {exc}")
        except Left:
            return


def _screen(*, last_word: bool) -> Screen:
    if sys.stdout.isatty():
        from shared.console.chat_terminal import TerminalScreen  # here: rich is for terminals

        return TerminalScreen()
    return LastWordScreen(as_json=False) if last_word else PlainScreen()
