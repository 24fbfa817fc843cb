"""Many pages at once, each in a chat: thousands of open sockets."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import Final

from proof.bench.chats import TOKEN
from proof.bench.page import Hear, Page, open_page

AT_ONCE: Final = 16
LIMIT_S: Final = 120.0


def ignore(_frame: bytes) -> None:
    """Hears nothing."""


class Crowd:
    """Pages of one server. `last` is the type of frame after which a page has all that it came for."""

    def __init__(self, address: str, hear: Hear = ignore, *, last: str = "resumed") -> None:
        self.pages: list[Page] = []
        self._address = address
        self._hear = hear
        self._last = f'"type":"{last}"'.encode()

    async def come(self, chats: Sequence[str]) -> None:
        """One page more for each of these chats; returns when all are shown."""
        waiting = iter(chats)
        async with asyncio.timeout(LIMIT_S), asyncio.TaskGroup() as group:
            for _ in range(AT_ONCE):
                group.create_task(self._each(waiting))

    async def _each(self, chats: Iterator[str]) -> None:
        shown = asyncio.Event()

        def hear(frame: bytes) -> None:
            if self._last in frame[:40]:
                shown.set()
            self._hear(frame)

        for chat in chats:
            shown.clear()
            page = await open_page(self._address, TOKEN, hear)
            self.pages.append(page)
            page.say("resume", chat=chat, after=0)
            await shown.wait()

    def leave(self) -> None:
        """All of them."""
        for page in self.pages:
            page.close()


@asynccontextmanager
async def crowd(address: str, hear: Hear = ignore, *, last: str = "resumed") -> AsyncIterator[Crowd]:
    """Nobody yet."""
    made = Crowd(address, hear, last=last)
    try:
        yield made
    finally:
        made.leave()
