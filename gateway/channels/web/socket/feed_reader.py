"""The feed of a person as frames of one socket."""

from __future__ import annotations

import asyncio
from typing import Final

from gateway.channels.web.socket.chat_keeper import ChatKeeper
from gateway.channels.web.socket.frames import encode_frame
from gateway.channels.web.socket.page_reader import Subscriber
from shared.chatlog.follower import RETRY_S
from shared.messages.web import ErrorFrame, FeedFact, FeedFrame
from shared.store.delivery.feed import Fact, Missed

AWAY: Final = "Shoal cannot read your chats just now; they appear as soon as the store is back"


class PageFeed:
    """Sends the facts of a person's feed to a socket, with the rows that the page cannot make of
    them; the whole list where facts are missing."""

    def __init__(self, subscriber: Subscriber, keeper: ChatKeeper, cursor: str) -> None:
        self.cursor = cursor
        self.stale = True
        self.reading: asyncio.Task[None] | None = None
        self._subscriber = subscriber
        self._keeper = keeper
        self._answered = False

    def on_fact(self, fact: Fact) -> bool:
        if fact.row:  # which is read first
            return False
        self._subscriber.send(encode_frame(FeedFrame(fact.id, [_frame_fact(fact)])))
        return True

    async def on_missed(self, missed: Missed) -> None:
        if missed.facts is None:
            frame = FeedFrame(missed.cursor, chats=await self._keeper.list(), whole=True)
        else:
            changed = dict.fromkeys(fact.chat for fact in missed.facts if fact.row)
            rows = await self._keeper.rows(list(changed)) if changed else []
            # Only the first answer is due where nothing is new.
            if self._answered and not missed.facts and missed.cursor == self.cursor:
                return
            frame = FeedFrame(missed.cursor, [_frame_fact(fact) for fact in missed.facts], rows)
        self._answered = True
        self._subscriber.send(encode_frame(frame))
        await self._subscriber.drain()

    def on_away(self) -> None:
        if not self._answered:
            self._answered = True
            error = ErrorFrame("unavailable", AWAY, retry_after=RETRY_S)
            self._subscriber.send(encode_frame(error))

    async def on_broken(self) -> None:
        if not self._answered:
            self._answered = True
            self._subscriber.send(encode_frame(FeedFrame("", chats=await self._keeper.list(), whole=True)))


def _frame_fact(fact: Fact) -> FeedFact:
    return FeedFact(fact.chat, fact.at, fact.seq, fact.seen, fact.running, fact.asks, fact.deleted)
