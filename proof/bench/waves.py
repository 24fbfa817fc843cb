"""Many messages at once, as a gateway pushes them, and the moment at which each reply is heard. No sockets."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Final

from shared.messages.inbound import InboundMessage
from shared.store import keys
from shared.store.client.redis_client import RedisClient
from shared.store.delivery.fanout import Fanout
from shared.store.turns.inbox import Inbox, InboxLimits
from shared.tasks import cancel_all
from tests.helpers.build import message

PUSHERS: Final = 16
LIMIT_S: Final = 120.0


class Waves:
    """Chats that are heard, and into which messages are pushed."""

    def __init__(self, client: RedisClient, chats: Sequence[str]) -> None:
        self._inbox = Inbox(client, InboxLimits())
        self._chats = list(chats)
        self._pushed: dict[str, float] = {}
        self._seconds: list[float] = []
        self._all = asyncio.Event()
        self._again: asyncio.Queue[str] | None = None

    def hear(self, chat: str, data: bytes) -> None:
        """Something was published in a chat; a line of its log is the reply, for nobody shows what was said."""
        if data.startswith(b"{"):
            return
        began = self._pushed.pop(chat, None)
        if began is None:
            return
        self._seconds.append(time.perf_counter() - began)
        if self._again is not None:
            self._again.put_nowait(chat)
        elif not self._pushed:
            self._all.set()

    async def wave(self, many: int, *, over_s: float = 0.0) -> list[float]:
        """One message in each of the first `many` chats, evenly over so long; seconds from each push to its reply."""
        await self.push(many, over_s=over_s)
        async with asyncio.timeout(LIMIT_S):
            while self._pushed:
                self._all.clear()
                await self._all.wait()
        return self._seconds

    async def push(self, many: int, *, over_s: float = 0.0) -> None:
        """The messages alone."""
        self._seconds = []
        began, waiting = time.perf_counter(), iter(enumerate(self._chats[:many]))

        async def pusher() -> None:
            for n, chat in waiting:
                early_s = began + over_s * n / many - time.perf_counter()
                if early_s > 0.001:
                    await asyncio.sleep(early_s)
                await self._say(chat)

        await asyncio.gather(*(pusher() for _ in range(PUSHERS)))

    @asynccontextmanager
    async def talking(self, many: int) -> AsyncIterator[list[float]]:
        """Each of so many chats says the next thing as soon as it is answered; the seconds of each turn so far."""
        again = self._again = asyncio.Queue()
        self._seconds = []
        for chat in self._chats[:many]:
            again.put_nowait(chat)

        async def pusher() -> None:
            while True:
                await self._say(await again.get())

        pushers = [asyncio.create_task(pusher()) for _ in range(min(PUSHERS, many))]
        try:
            yield self._seconds
        finally:
            await cancel_all(pushers)
            self._again = None

    async def _say(self, chat: str) -> None:
        sent: InboundMessage = message("And what does the next one say?", chat=f"owner/{chat}")
        self._pushed[chat] = time.perf_counter()
        await self._inbox.ingest(sent)


@asynccontextmanager
async def waves(client: RedisClient, chats: Sequence[str]) -> AsyncIterator[Waves]:
    """Hear these chats."""
    there, made = asyncio.Event(), Waves(client, chats)

    async def connected() -> None:
        there.set()

    fanout = Fanout(client, on_gap=connected)
    for chat in chats:
        await fanout.subscribe(keys.live(f"web:owner/{chat}"), partial(made.hear, chat))
    listening = asyncio.create_task(fanout.run())
    try:
        await there.wait()
        yield made
    finally:
        await cancel_all([listening])
