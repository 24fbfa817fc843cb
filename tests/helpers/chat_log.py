"""A chat's log and its live news, moved by hand."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Awaitable, Callable
from typing import Any

from shared.errors import RedisAway
from shared.messages.live import DeltaEvent
from shared.messages.outbound import LogLine
from shared.store.delivery.fanout import Listener
from shared.store.delivery.outbox import LogPosition, NumberedLine


class NewsByHand:
    """Live news that the test hands over itself."""

    def __init__(self) -> None:
        self.listeners: dict[str, Listener] = {}
        self.on_gap: Callable[[], Awaitable[None]]
        self.confirmed = asyncio.Event()
        self.confirmed.set()

    async def follow_chat(self, session: str, listener: Listener) -> None:
        self.listeners[session] = listener
        await self.confirmed.wait()

    async def unfollow_chat(self, session: str) -> None:
        del self.listeners[session]

    async def run(self) -> None:
        await asyncio.Event().wait()


class Question:
    """A question to the log that is on its way: the server answers, later the answer arrives."""

    def __init__(self, compute: Callable[[], Any]) -> None:
        self.compute = compute
        self.computed: list[Any] = []
        self.answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    def serve(self) -> None:
        if not self.computed:
            self.computed.append(self.compute())

    def arrive(self) -> None:
        self.serve()
        if not self.answer.done():
            self.answer.set_result(self.computed[0])

    def fail(self) -> None:
        if not self.answer.done():
            self.answer.set_exception(RedisAway("away"))


class LogByHand:
    """A chat's log. With `by_hand`, answers wait until the test lets them through."""

    def __init__(self, *, by_hand: bool = False) -> None:
        self.lines: dict[int, LogLine] = {}
        self.last = 0
        self.running: int | None = None
        self.shown: list[DeltaEvent] = []
        self.by_hand = by_hand
        self.questions: list[Question] = []
        self.reads = 0

    def append(self, line: LogLine) -> NumberedLine:
        self.last += 1
        self.lines[self.last] = line
        return self.numbered(self.last)

    def numbered(self, seq: int) -> NumberedLine:
        line = self.lines[seq]
        return NumberedLine(seq, line, zlib.crc32(repr(line).encode()))

    async def _ask(self, compute: Callable[[], Any]) -> Any:
        if not self.by_hand:
            return compute()
        question = Question(compute)
        self.questions.append(question)
        try:
            return await question.answer
        finally:
            self.questions.remove(question)

    settles = False
    """With it, lines count only after `settled`."""

    async def settled(self) -> None:
        await self._ask(lambda: None)

    async def position(self, session: str, seq: int = 0) -> LogPosition:
        def compute() -> LogPosition:
            mark = self.numbered(seq).mark if seq in self.lines else 0
            return LogPosition(self.last, self.running, mark, tuple(self.shown))

        answer: LogPosition = await self._ask(compute)
        return answer

    async def read_after(self, session: str, *, after: int, limit: int) -> list[NumberedLine]:
        self.reads += 1

        def page() -> list[NumberedLine]:
            found = [self.numbered(seq) for seq in sorted(self.lines) if seq > after]
            return found[:limit]

        answer: list[NumberedLine] = await self._ask(page)
        return answer
