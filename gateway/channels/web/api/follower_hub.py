"""Brings news of chats to the requests that wait there for an answer.

As in the hub of the sockets, pub/sub is speed and the log is the truth: the log is read at the
start, after a gap, after a silence.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

from gateway.channels.web.api.turn_follower import TurnFollower
from gateway.channels.web.socket.hub import ChatLog, LiveFeed
from shared.clock import SYSTEM_CLOCK, Clock
from shared.store.delivery.fanout import ChatNews

PAGE: Final = 100
READERS: Final = 4
"""Logs that are read at once: fewer than the connections of the pool."""


class _FollowedChat:
    """A chat in which somebody waits."""

    def __init__(self, listening: asyncio.Future[None]) -> None:
        self.subscribed = listening
        self.followers: set[TurnFollower] = set()


class FollowerHub:
    """All requests of this process that wait. `make_news` gets what is to be called whenever news
    may have been missed."""

    def __init__(
        self,
        chat_log: ChatLog,
        make_news: Callable[[Callable[[], Awaitable[None]]], LiveFeed],
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._log = chat_log
        self._news = make_news(self._on_gap)
        self._clock = clock
        self._chats: dict[str, _FollowedChat] = {}
        self._readers = asyncio.Semaphore(READERS)

    @property
    def requests(self) -> int:
        """How many wait."""
        return sum(len(room.followers) for room in self._chats.values())

    async def run(self) -> None:
        """Listen until cancelled."""
        await self._news.run()

    async def follow(self, session: str, waiting: TurnFollower) -> None:
        """Tell this one what happens in a chat, until it leaves. No line that comes after this
        returned is missed."""
        room = self._chats.get(session)
        if room is None:
            listening = asyncio.ensure_future(self._news.follow_chat(session, partial(self._on_event, session)))
            room = self._chats[session] = _FollowedChat(listening)
        room.followers.add(waiting)
        await asyncio.shield(room.subscribed)

    async def unfollow(self, session: str, waiting: TurnFollower) -> None:
        """Tell it nothing more."""
        room = self._chats.get(session)
        if room is None:
            return
        room.followers.discard(waiting)
        await asyncio.wait([room.subscribed])
        if not room.followers and self._chats.get(session) is room:
            del self._chats[session]
            await self._news.unfollow_chat(session)

    async def read_log(self, session: str, waiting: TurnFollower) -> None:
        """Read what the log has. A message that waits no more and has no answer there is lost.
        Raises RedisAway."""
        waiting.stale = False
        async with self._readers:
            state = await self._log.position(session)
            if state.last_seq < waiting.seq:
                waiting.restart()
            more = True
            while more and waiting.end is None:
                page = await self._log.read_after(session, after=waiting.seq, limit=PAGE)
                for numbered in page:
                    waiting.add_line(numbered)
                more = len(page) == PAGE
        waiting.last_event_at = self._clock.monotonic()
        waiting.seq = max(waiting.seq, state.last_seq)
        waiting.lost = waiting.end is None and state.running is None

    def wake_all(self) -> None:
        """Let all of them see that something has changed."""
        for waiting in self._all():
            waiting.changed.set()

    def _all(self) -> list[TurnFollower]:
        return [waiting for room in self._chats.values() for waiting in room.followers]

    def _on_event(self, session: str, news: ChatNews) -> None:
        now = self._clock.monotonic()
        room = self._chats.get(session)
        for waiting in room.followers if room else ():
            waiting.on_event(news, now)

    async def _on_gap(self) -> None:
        for waiting in self._all():
            waiting.stale = True
        self.wake_all()
