"""A chat as it is shown on a screen: messages, answers as they grow, requests for approval."""

from __future__ import annotations

import queue
import re
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Final

from console.chat.client import ChatClient, ChatEnded, ChatFailed, ClientEvent, Connected, Interrupted
from console.chat.screen import Screen, is_silent
from console.chat.state import ChatNote, GrowingReply, MessageRefused, OpeningLines, ReplyEvent
from shared.errors import ShoalError
from shared.messages import web
from shared.messages.web import ApprovalFrame, MessageFrame, ReplyFrame
from shared.terminal_text import clean_line, counted

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
    commands: tuple[str, ...] = ()
    """The gateway's commands, with their slashes; set by `greet`."""

    open_question: ApprovalFrame | None = None
    """The request for approval that nobody has answered yet."""

    answered: int = 0
    """The latest turn that has ended."""

    _own: set[str] = field(default_factory=set)
    _decisions: set[str] = field(default_factory=set)
    _own_turn: int = 0
    _noted: str = ""
    _buttons: Sequence[str] = ()

    def open(self, history: int) -> None:
        """Show the last lines, and wait for a turn that runs. Raises ChatFailed, UserLeft."""
        running = 0

        def resumed(event: ClientEvent) -> bool:
            nonlocal running
            match event:
                case Connected():
                    self.greet(event)
                case OpeningLines(lines=lines):
                    self.show_opening(lines, history)
                case web.ResumedFrame():
                    running = event.running or 0
                    return True
            return False

        def quiet(event: ClientEvent) -> bool:
            # A turn may end while the chat is resumed, so that its reply comes first; or be lost
            # with the store's tail.
            lost = isinstance(event, web.ResumedFrame) and event.running is None
            return lost or self.answered >= running

        self._follow(resumed, stop=None)
        if running > self.answered:
            self.screen.running("")
            if self.open_question is not None and self.open_question.turn == running:
                self._ask_approval(self.open_question)
            self._follow(quiet, stop=lambda: self.chat.stop(running))

    def greet(self, connected: Connected) -> None:
        """Say who is connected, and learn the gateway's commands."""
        self.commands = tuple(f"/{word}" for word in connected.commands)
        hint = "/help shows what you can ask with a slash, " if "help" in connected.commands else ""
        self.screen.note(f"connected as {connected.principal}; {hint}/quit or Ctrl-D leaves")

    def send(self, text: str, media: Sequence[str] = ()) -> str:
        """Send a message of the person's; return its id."""
        id = self.chat.send_message(text, media=media)
        self._own.add(id)
        return id

    def send_decision(self, approval: ApprovalFrame, decision: str) -> str:
        """Answer a request with `yes`, `no` or `always`; return the id of the message."""
        id = self.chat.send_message(f"/{decision} {approval.call}")
        self._decisions.add(id)
        self.open_question = None
        return id

    def show_question(self, approval: ApprovalFrame) -> None:
        """Show what a tool wants to do, below the text so far."""
        self.screen.keep()
        chat = approval.chat
        turn = approval.turn
        text = ReplyFrame(chat, approval.seq, turn, approval.text, "", (), "notice", 0)
        self.screen.reply(text)

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
            self.show(self.chat.events.get())
        self.screen.rest()

    def show_opening(self, lines: Sequence[web.LineFrame], history: int) -> None:
        """Show the last `history` of the lines, and find a request that is open."""
        for at, line in enumerate(lines):
            shown = at >= len(lines) - history
            if isinstance(line, MessageFrame):
                if shown:
                    self.screen.user_message(line.text)
            elif isinstance(line, ApprovalFrame):
                self.open_question = line if line.state == "open" else None
            elif shown and not is_silent(line):
                self._render_reply(line)
        if lines and history:
            self._acknowledge(lines[-1].seq)

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
                    self.screen.note("no word yet; Ctrl-C stops what was asked, and again leaves it to come later")
                    continue
                if not isinstance(event, Interrupted):
                    self.show(event)
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
        elif self.open_question is not None and self.open_question.call == approval.call:
            self.open_question = None
            self.screen.note(outcome_note(approval))

    def _ask_approval(self, approval: ApprovalFrame) -> None:
        self.open_question = approval
        self.screen.keep()
        if self.decide is None:
            self.screen.note(
                f"waits for a yes to {approval.tool} {clean_line(approval.arguments)}; "
                "nobody here can be asked, say it on the chat page"
            )
            return
        self.show_question(approval)
        decision = self.decide(f"run {clean_line(approval.tool)}?")
        if decision is None:
            self.screen.note(f"not answered; /yes {approval.call} or /no {approval.call} does it later")
            return
        self.send_decision(approval, "yes" if decision else "no")
        self.screen.running("")

    def show(self, event: ClientEvent) -> None:
        """Show one event; what was shown is read on the person's other devices, too."""
        self._render_event(event)
        match event:
            case MessageFrame(seq=seq) | ApprovalFrame(seq=seq) | ReplyEvent(reply=ReplyFrame(seq=seq)):
                self._acknowledge(seq)

    def _acknowledge(self, seq: int) -> None:
        # With `own_only` the other lines of the chat were not shown.
        if not self.own_only:
            self.chat.acknowledge(seq)

    def _render_event(self, event: ClientEvent) -> None:
        match event:
            case MessageFrame(id=id, text=text) if not self.own_only and id not in self._own | self._decisions:
                self.screen.user_message(text)
            case GrowingReply(turn=turn, text=text) if self._is_shown(turn):
                self.screen.running(text)
            case web.ProgressFrame(turn=turn, text=text) if self._is_shown(turn):
                self.screen.progress(text)
            case ReplyEvent(reply=reply, ids=ids):
                if reply.kind != "notice":
                    self.answered = max(self.answered, reply.turn)
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


def outcome_note(approval: ApprovalFrame) -> str:
    """Return what became of a question, and where and by whom it was answered elsewhere."""
    where = {"": "", "terminal": "in a terminal", "page": "on the page", "phone": "on a phone"}
    from_where = where.get(approval.where, f"in {approval.where}")
    answered = " ".join(filter(None, (approval.state, from_where, approval.by_name and f"by {approval.by_name}")))
    return f"{clean_line(answered)}: {clean_line(approval.tool)}"
