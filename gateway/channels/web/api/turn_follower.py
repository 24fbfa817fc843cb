"""Follows the chats in which requests wait for an answer.

As for the sockets, pub/sub is only fast and the log is the truth: it is read at the start, after a
gap and after a silence.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

import msgspec

from gateway.channels.web.socket.hub import ChatLog, LiveFeed
from shared.clock import SYSTEM_CLOCK, Clock
from shared.errors import BadInput
from shared.media.reference import read_reference
from shared.messages.live import DeltaEvent, JoinedEvent
from shared.messages.outbound import Approval, OutboundMessage
from shared.store.delivery.fanout import ChatNews
from shared.store.delivery.outbox import NumberedLine

PAGE: Final = 100
READERS: Final = 4
"""Logs that are read at the same time: fewer than the connections of the pool."""


class Aside(msgspec.Struct, frozen=True):
    """A text outside the reply of a turn: a message that the agent sent, or a request to run a
    tool."""

    turn: int
    text: str
    is_question: bool = False


class TurnFollower:
    """Waits for the line that answers message `id`, from the line after number `after` on. No I/O.

    `number` is that of the message, once it is known. `end` is the line; `lost` means that none
    will come. `stale` means that lines may have been missed, so the log must be read.
    """

    def __init__(self, id: str, after: int, now: float) -> None:
        self.seq = after
        self.number = 0
        self.stale = False
        self.end: OutboundMessage | None = None
        self.lost = False
        self.question: Approval | None = None
        self.last_event_at = now
        self.changed = asyncio.Event()
        self._id = id
        self._joined: dict[int, int] = {}
        self._asides: list[Aside] = []
        self._live = (0, 0)  # turn and attempt of the running reply
        self._text = ""
        self._next = 0

    @property
    def turn(self) -> int:
        """The turn that answers the message: its own, unless the message joined another turn."""
        return self._joined.get(self.number, self.number)

    @property
    def text(self) -> str:
        """The running reply, as far as it is known."""
        return self._text if self.number and self._live[0] == self.turn else ""

    @property
    def asides(self) -> list[Aside]:
        """Texts of the turn outside its reply, in order."""
        return [one for one in self._asides if self.number and one.turn == self.turn]

    def on_event(self, event: ChatNews, now: float) -> None:
        """Take in an event of the chat, live."""
        self.last_event_at = now
        match event:
            case NumberedLine(seq=seq) if seq == self.seq + 1:
                self.add_line(event)
            case NumberedLine(seq=seq):
                self.stale = self.stale or seq > self.seq
            case DeltaEvent():
                self._add_delta(event)
            case JoinedEvent(turn=turn, messages=messages):
                self._joined.update(dict.fromkeys(messages, turn))
        self.changed.set()

    def add_line(self, numbered: NumberedLine) -> None:
        """Take in the next line of the log; a line that is known changes nothing."""
        if numbered.seq <= self.seq:
            return
        self.seq = numbered.seq
        if not isinstance(line := numbered.line, OutboundMessage):
            return
        if self._id in line.in_reply_to:
            self.end = line
        elif line.approval is not None:
            self.question = line.approval if line.approval.state == "open" else None
            if self.question is not None:
                self._asides.append(Aside(line.turn, line.content, is_question=True))
        elif line.sent_by_tool:
            self._asides.append(Aside(line.turn, _aside_text(line)))

    def restart(self) -> None:
        """Forget the lines: the store lost some, and the log is read again from its beginning."""
        self.seq = 0
        self._asides.clear()

    def _add_delta(self, delta: DeltaEvent) -> None:
        attempt = (delta.turn, delta.attempt)
        if attempt < self._live:
            return
        if attempt > self._live:
            self._live, self._text, self._next = attempt, "", 0
        if delta.full:
            self._text = delta.text
        elif delta.seq == self._next:
            self._text += delta.text
        else:
            return  # a gap: a full text comes soon
        self._next = delta.seq + 1


def _aside_text(line: OutboundMessage) -> str:
    """Return the text of a line with its buttons, and the names of its files, which this API cannot
    transfer."""
    marks = [f"[file: {_file_name(one)}]" for one in line.media] + [f"[{label}]" for label in line.buttons]
    return "\n".join(filter(None, [line.content, " ".join(marks)]))


def _file_name(reference: str) -> str:
    try:
        return read_reference(reference).name
    except BadInput:
        return "file"


class _FollowedChat:
    """A chat with followers, and its subscription."""

    def __init__(self, subscribed: asyncio.Future[None]) -> None:
        self.subscribed = subscribed
        self.followers: set[TurnFollower] = set()


class FollowerHub:
    """Hands the events of chats to the followers of this process. `make_feed` gets the function to
    call whenever events may have been missed."""

    def __init__(
        self,
        chat_log: ChatLog,
        make_feed: Callable[[Callable[[], Awaitable[None]]], LiveFeed],
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._log = chat_log
        self._feed = make_feed(self._on_gap)
        self._clock = clock
        self._chats: dict[str, _FollowedChat] = {}
        self._readers = asyncio.Semaphore(READERS)

    async def run(self) -> None:
        """Receive events until cancelled."""
        await self._feed.run()

    async def follow(self, session: str, follower: TurnFollower) -> None:
        """Hand the events of a chat to a follower, until it unfollows. No line that comes after
        this returned is missed."""
        chat = self._chats.get(session)
        if chat is None:
            listening = asyncio.ensure_future(self._feed.follow_chat(session, partial(self._on_event, session)))
            chat = self._chats[session] = _FollowedChat(listening)
        chat.followers.add(follower)
        # Shielded: other followers wait for the same subscription.
        await asyncio.shield(chat.subscribed)

    async def unfollow(self, session: str, follower: TurnFollower) -> None:
        """Remove a follower; the last one ends the subscription."""
        chat = self._chats.get(session)
        if chat is None:
            return
        chat.followers.discard(follower)
        # A subscription under way would be made after it was ended here.
        await asyncio.wait([chat.subscribed])
        if not chat.followers and self._chats.get(session) is chat:
            del self._chats[session]
            await self._feed.unfollow_chat(session)

    async def read_log(self, session: str, follower: TurnFollower) -> None:
        """Hand a follower the lines of the log. It is lost when its answer is not there and no turn
        runs or waits. Raises RedisAway."""
        follower.stale = False
        async with self._readers:
            # The position comes first: all lines up to it are then in the log.
            position = await self._log.position(session)
            if position.last_seq < follower.seq:
                follower.restart()
            more = True
            while more and follower.end is None:
                page = await self._log.read_after(session, after=follower.seq, limit=PAGE)
                for numbered in page:
                    follower.add_line(numbered)
                more = len(page) == PAGE
        follower.last_event_at = self._clock.monotonic()
        follower.seq = max(follower.seq, position.last_seq)
        follower.lost = follower.end is None and position.running is None

    def wake_all(self) -> None:
        """Let every follower check its state again."""
        for follower in self._followers():
            follower.changed.set()

    def _followers(self) -> list[TurnFollower]:
        return [follower for chat in self._chats.values() for follower in chat.followers]

    def _on_event(self, session: str, event: ChatNews) -> None:
        now = self._clock.monotonic()
        chat = self._chats.get(session)
        for follower in chat.followers if chat else ():
            follower.on_event(event, now)

    async def _on_gap(self) -> None:
        for follower in self._followers():
            follower.stale = True
        self.wake_all()
