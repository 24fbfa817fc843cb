"""A chat on a terminal: the prompt stays at the bottom, and what happens is printed above it. The
person can go on typing, and sending, while an answer grows."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Sequence
from functools import partial
from typing import Final, NamedTuple

from console.chat.client import ChatClient, ChatEnded, ClientEvent, Connected, Interrupted
from console.chat.dialog import ChatDialog, outcome_note, unknown_command
from console.chat.local_commands import ATTACH, CHAT_NAME, LEAVE, LOCAL_COMMANDS, LOCAL_HELP, SESSIONS
from console.chat.prompt import ChatPrompt, PromptView, can_prompt
from console.chat.state import ChatNote, GrowingReply, MessageRefused, OpeningLines, ReplyEvent
from console.chat.terminal import PromptScreen
from console.chat.upload import AttachFailed, upload
from shared.messages import web
from shared.messages.outbound import CONTEXT_SHOWN_PERCENT
from shared.messages.web import ApprovalFrame, ChatRow, MediaFrame
from shared.tasks import cancel_all
from shared.terminal_text import clean_line, counted, duration, shorten, size

__all__ = ["Gateway", "LiveChat", "can_prompt", "talk"]

_DECISIONS: Final = {"y": "yes", "yes": "yes", "n": "no", "no": "no", "a": "always", "always": "always"}
_TITLE_CHARS: Final = 60


class Gateway(NamedTuple):
    """Address of the web socket, and the person's token."""

    url: str
    token: str


def talk(gateway: Gateway, chat: str, *, history: int) -> None:
    """Chat until the person leaves, in one chat after the other. Raises ChatFailed."""
    name: str | None = chat
    while name is not None:
        with ChatClient(gateway.url, gateway.token, name) as client:
            name = asyncio.run(LiveChat(client, gateway, name, history=history).run())


class LiveChat:
    """One chat, from its opening until the person leaves it."""

    def __init__(self, client: ChatClient, gateway: Gateway, name: str, *, history: int) -> None:
        self._client = client
        self._gateway = gateway
        self._name = name
        self._history = history
        self._screen = PromptScreen()
        self._dialog = ChatDialog(client, self._screen, own_only=False)
        view = PromptView(self._screen.above, self.status, self._busy, self._stop, self._commands, self._chat_names)
        self._prompt = ChatPrompt(view)
        self._events: asyncio.Queue[ClientEvent] = asyncio.Queue()
        self._opened = asyncio.Event()
        self._next: str | None = None
        self._pending: set[str] = set()  # ids of messages from here that have no answer yet
        self._running = 0
        self._ahead = 0
        self._since: float | None = None
        self._lost = False
        self._stopping = False
        self._question: ApprovalFrame | None = None
        self._files: list[MediaFrame] = []
        self._limits = Connected("")
        self._chats: Sequence[ChatRow] = ()
        self._listing = False
        self._last = ""  # how the newest answer came about

    async def run(self) -> str | None:
        """Return the chat that the person wants next; None when they leave. Raises ChatFailed."""
        pump = threading.Thread(target=self._pump, args=(asyncio.get_running_loop(),), daemon=True)
        pump.start()
        following = asyncio.create_task(self._follow())
        opening = asyncio.create_task(self._opened.wait())
        ticking = asyncio.create_task(self._tick())
        following.add_done_callback(lambda _: self._prompt.abandon())
        try:
            await asyncio.wait({following, opening}, return_when=asyncio.FIRST_COMPLETED)
            while not following.done():
                try:
                    typed = await self._prompt.read_message()
                except EOFError:
                    break
                if not await self._handle(typed):
                    break
            if following.done():
                following.result()
            return self._next
        finally:
            self._client.interrupt()  # ends the pump
            await asyncio.to_thread(pump.join)
            await cancel_all([following, opening, ticking])

    def _pump(self, loop: asyncio.AbstractEventLoop) -> None:
        """Hand the client's events on to the event loop."""
        while True:
            event = self._client.events.get()
            loop.call_soon_threadsafe(self._events.put_nowait, event)
            if isinstance(event, ChatEnded | Interrupted):
                return

    async def _tick(self) -> None:
        """Keep the seconds of the status running; an idle prompt costs nothing."""
        while True:
            await asyncio.sleep(1.0)
            if self._since is not None:
                self._prompt.refresh()

    async def _follow(self) -> None:
        while True:
            events = [await self._events.get()]
            while not self._events.empty():
                events.append(self._events.get_nowait())
            if not any(map(self._prints, events)):
                self._show(events)
            else:  # the prompt steps aside, once for all of them
                await self._prompt.print_above(partial(self._show, events))
            self._prompt.refresh()

    def _prints(self, event: ClientEvent) -> bool:
        """Return False for an event that changes nothing but the text above and the status."""
        if isinstance(event, web.ChatListFrame):
            return self._listing
        if isinstance(event, web.ResumedFrame):
            return self._question is not None
        return not isinstance(event, GrowingReply | web.TurnFrame | web.AcceptedFrame)

    def _show(self, events: Sequence[ClientEvent]) -> None:
        for event in events:
            self._on_event(event)
            self._keep_time()

    def _on_event(self, event: ClientEvent) -> None:
        match event:
            case Connected():
                self._limits = event
                self._dialog.greet(event)
            case OpeningLines(lines=lines):
                self._dialog.show_opening(lines, self._history)
                self._question = self._dialog.open_question
            case web.ResumedFrame():
                self._on_resumed(event)
            case web.TurnFrame(turn=turn, state="started") | GrowingReply(turn=turn):
                self._running = max(turn, self._running)
                self._ahead = 0
            case web.AcceptedFrame(id=id, ahead=ahead) if id in self._pending:
                self._ahead = ahead
            case ApprovalFrame():
                self._on_approval(event)
            case ReplyEvent(reply=reply, ids=ids):
                self._pending.difference_update(ids)
                self._last = _work(reply) or self._last
                if self._question is not None and reply.turn == self._question.turn and reply.kind != "notice":
                    self._question = None
            case MessageRefused(reason=reason, id=id):
                self._pending.discard(id)
                self._screen.note(f"not sent: {reason}")
            case web.ChatListFrame(chats=chats):
                self._on_chats(chats)
            case ChatNote(lost=True):
                self._lost = True
        self._dialog.show(event)

    def _on_resumed(self, event: web.ResumedFrame) -> None:
        self._lost = False
        self._running = event.running or 0
        if not self._opened.is_set():
            self._opened.set()
            if self._question is not None and self._question.turn == self._running:
                self._dialog.show_question(self._question)
            else:
                self._question = None
            self._client.list_chats()  # for the Tab key

    def _on_approval(self, approval: ApprovalFrame) -> None:
        if approval.state == "open":
            self._question = approval
            self._dialog.show_question(approval)
        elif self._question is not None and self._question.call == approval.call:
            self._question = None
            self._screen.note(outcome_note(approval))

    def _on_chats(self, chats: Sequence[ChatRow]) -> None:
        self._chats = chats
        if not self._listing:
            return
        self._listing = False
        now_s = time.time()
        for number, row in enumerate(chats, 1):
            ago = f"{duration(now_s - row.at / 1000)} ago"
            facts = ", ".join(filter(None, (row.chat, ago, "running" if row.running else "")))
            here = "*" if row.chat == self._name else " "
            self._screen.line(f"{here}{number:>3}. {shorten(row.title or row.chat, _TITLE_CHARS)} ({facts})")
        self._screen.note("/sessions NUMBER opens one, /sessions NAME one by its name, also a new one")

    async def _handle(self, typed: str) -> bool:
        """Do what a line says. Return False to leave this chat."""
        word, _, rest = typed.strip().partition(" ")
        if word in LEAVE:
            return False
        if word == SESSIONS:
            return not self._choose(rest.strip())
        if word == ATTACH:
            await self._attach(rest.strip())
        elif typed.strip():
            self._send(typed)
        return True

    def _send(self, typed: str) -> None:
        question = self._question
        decision = _DECISIONS.get(typed.strip().lower())
        if decision == "always" and (question is None or not question.standing):
            decision = None  # then it is a message like any other
        if question is not None and decision:
            self._question = None
            self._pending.add(self._dialog.send_decision(question, decision))
            return
        text = self._dialog.expand_number(typed)
        if word := unknown_command(text, self._commands()):
            self._screen.note(f"{word} is not a command; it was said as a message")
        if text.strip() == "/help":
            self._screen.note(LOCAL_HELP)
        self._stopping = False
        self._pending.add(self._dialog.send(text, [file.ref for file in self._files]))
        self._files.clear()
        self._keep_time()

    async def _attach(self, path: str) -> None:
        if not path:
            names = ", ".join(file.name for file in self._files)
            self._screen.note(f"attached: {names}" if names else "say which: /attach FILE")
            return
        if path == "-":
            self._files.clear()
            self._screen.note("nothing is attached")
            return
        if len(self._files) >= self._limits.files:
            most = counted(self._limits.files, "file")
            self._screen.note(f"a message here takes at most {most}; `/attach -` takes them off")
            return
        file = path.strip("'\"")  # a terminal puts quotes around a file that is dropped into it
        to = partial(upload, *self._gateway, self._name, file, limit_bytes=self._limits.file_bytes)
        try:
            kept = await asyncio.to_thread(to)
        except AttachFailed as exc:
            self._screen.note(f"not attached: {exc}")
            return
        self._files.append(kept)
        self._screen.note(f"attached: {kept.name}, {size(kept.size)}; it goes with your next message")

    def _choose(self, choice: str) -> bool:
        """List the chats, or leave this one for the chosen one: then return True."""
        if not choice:
            self._listing = True
            if not self._client.list_chats():
                self._listing = False
                self._screen.note("there is no connection just now")
            return False
        if choice.isdecimal() and 1 <= int(choice) <= len(self._chats):
            choice = self._chats[int(choice) - 1].chat
        if not CHAT_NAME.fullmatch(choice):
            self._screen.note("a chat's name has 1 to 64 letters, digits, dashes and underscores")
            return False
        if choice == self._name:
            self._screen.note("this is that chat")
            return False
        self._next = choice
        return True

    def _stop(self) -> None:
        self._stopping = True
        self._client.stop(None if self._pending else self._running)

    def _busy(self) -> bool:
        return bool(self._pending) or self._running > self._dialog.answered

    def _keep_time(self) -> None:
        if not self._busy():
            self._since = None
            self._stopping = False
            self._ahead = 0
        elif self._since is None:
            self._since = time.monotonic()

    def _commands(self) -> Sequence[str]:
        return sorted({*self._dialog.commands, *LOCAL_COMMANDS})

    def _chat_names(self) -> Sequence[str]:
        return [row.chat for row in self._chats]

    def status(self) -> str:
        """Return the line at the bottom: the chat, what its turn does, and attached files."""
        files = f"{counted(len(self._files), 'file')} attached" if self._files else ""
        return "  ·  ".join(filter(None, (self._name, *self._state(), files)))

    def _state(self) -> Sequence[str]:
        if self._lost:
            return ("no connection: what you send goes out when it is back",)
        if self._question is not None:
            choices = "y, n or a (always)" if self._question.standing else "y or n"
            return (f"waiting for approval: may it run {clean_line(self._question.tool)}? {choices}",)
        if self._since is None:
            return (self._last or "Enter sends, Alt-Enter begins a line, Tab completes", "/help")
        if self._stopping:
            what = "stopping"
        elif self._running > self._dialog.answered:
            what = "running"
        else:
            what = f"queued, {self._ahead} before it" if self._ahead else "queued"
        return (f"{what}, {duration(time.monotonic() - self._since)}", "Esc stops")


def _work(reply: web.ReplyFrame) -> str:
    """Return model, tools, tokens and time of an answer, and a context that is nearly full; "" where
    no model was asked."""
    if (work := reply.work) is None:
        return ""
    tools = counted(work.tools, "tool") if work.tools else ""
    tokens = counted(reply.tokens, "token") if reply.tokens else ""
    percent = work.context_percent
    context = f"context {percent} % full" if percent >= CONTEXT_SHOWN_PERCENT else ""
    return ", ".join(filter(None, (clean_line(work.model), tools, tokens, f"{work.ms / 1000:.1f} s", context)))
