"""People who talk: each has a page with some chats, says something in one, and goes on when the reply is there."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Final

import msgspec

from proof.bench.page import Page, open_page

TOKEN: Final = "sesame"
LIMIT_S: Final = 60.0


class Frame(msgspec.Struct):
    """What is looked at of a frame."""

    type: str
    chat: str = ""
    text: str = ""
    message: str = ""


_frame: Final = msgspec.json.Decoder(Frame)


class Person:
    """One page. Not for two conversations at once."""

    def __init__(self, page: Page, awaited: asyncio.Queue[Frame], events: dict[str, int]) -> None:
        self.received = events
        """How many frames of each type came."""
        self._page = page
        self._awaited = awaited

    @classmethod
    async def come(cls, address: str) -> Person:
        """Log in."""
        awaited: asyncio.Queue[Frame] = asyncio.Queue()
        events: dict[str, int] = {}

        def hear(raw: bytes) -> None:
            frame = _frame.decode(raw)
            events[frame.type] = events.get(frame.type, 0) + 1
            if frame.type in ("welcome", "resumed", "reply", "error"):
                awaited.put_nowait(frame)

        person = cls(await open_page(address, TOKEN, hear), awaited, events)
        await person._next("welcome", "")
        return person

    async def look_at(self, chats: Sequence[str]) -> None:
        """Have these chats shown."""
        for chat in chats:
            self._page.say("resume", chat=chat, after=0)
            await self._next("resumed", chat)

    async def talk(self, chat: str, text: str) -> float:
        """Say something; how many seconds later the reply was there."""
        began = time.perf_counter()
        self._page.say("message", id=secrets.token_hex(16), chat=chat, text=text)
        await self._next("reply", chat)
        return time.perf_counter() - began

    def leave(self) -> None:
        """Close the page."""
        self._page.close()

    async def _next(self, kind: str, chat: str) -> Frame:
        async with asyncio.timeout(LIMIT_S):
            while True:
                frame = await self._awaited.get()
                if frame.type == "error":
                    raise RuntimeError(f"the gateway refused: {frame.message!r}")
                if frame.type == kind and frame.chat == chat:
                    return frame


class Table:
    """People who have their chats shown already."""

    def __init__(self, people: Sequence[tuple[Person, Sequence[str]]]) -> None:
        self._people = people

    async def talk(self, text: str = "And what does the next one say?") -> list[float]:
        """One turn in each chat; all people at once, each in one chat after the other. Their times in seconds."""
        times = await asyncio.gather(*(self._one(person, chats, text) for person, chats in self._people))
        return [seconds for some in times for seconds in some]

    async def _one(self, person: Person, chats: Sequence[str], text: str) -> list[float]:
        return [await person.talk(chat, text) for chat in chats]


@asynccontextmanager
async def seated(address: str, chats: Sequence[str], people: int) -> AsyncIterator[Table]:
    """So many people, who share these chats among them."""
    came: list[tuple[Person, Sequence[str]]] = []
    try:
        for n in range(people):
            person = await Person.come(address)
            came.append((person, chats[n::people]))
            await person.look_at(chats[n::people])
        yield Table(came)
    finally:
        for person, _ in came:
            person.leave()
