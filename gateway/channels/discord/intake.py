"""Takes events chat by chat, each chat's in order and many chats at once, and knows up to which all
are taken."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final
from weakref import WeakValueDictionary

from gateway.platform.protocol import ChannelBroken, NotDelivered, Throttled
from shared.backoff import full_jitter
from shared.errors import RedisAway, Refused
from shared.log import logger
from shared.tasks import cancel_all

ROOM: Final = 500
"""So many events wait or are under way; with more, no more are read."""

FIRST_S: Final = 0.5
CAP_S: Final = 15.0
FAULTS: Final = 5
"""An event over which our own code breaks so often is passed over."""

Work = Callable[[], Awaitable[None]]

log = logger("discord")


class Mark:
    """An event: its number, when it was said (ms, 0 = not known), and whether it is taken."""

    __slots__ = ("at_ms", "done", "seq")

    def __init__(self, seq: int, at_ms: int) -> None:
        self.seq = seq
        self.at_ms = at_ms
        self.done = False


class Window:
    """The events of one shard that are not all taken yet. Up to `seq` all are, and all that was
    said before `since_ms`."""

    def __init__(self, seq: int, since_ms: int) -> None:
        self.seq = seq
        self.since_ms = since_ms
        self._marks = deque[Mark]()

    def came(self, seq: int, at_ms: int = 0) -> Mark:
        """An event came, behind all others."""
        mark = Mark(seq, at_ms)
        self._marks.append(mark)
        return mark

    def passed(self, seq: int) -> None:
        """An event came that says nothing."""
        if self._marks and self._marks[-1].done:
            self._marks[-1].seq = seq  # so that they cost nothing while an earlier one waits
        else:
            self.taken(self.came(seq))

    def taken(self, mark: Mark) -> None:
        """It needs not come again."""
        mark.done = True
        while self._marks and self._marks[0].done:
            first = self._marks.popleft()
            self.seq = first.seq
            self.since_ms = max(self.since_ms, first.at_ms)


class Intake:
    """What is under way. `broken` is set when nothing more can be taken before a person mends
    something (`why`)."""

    def __init__(self) -> None:
        self.broken = asyncio.Event()
        self.why: ChannelBroken | None = None
        self._room = asyncio.Semaphore(ROOM)
        self._chats = WeakValueDictionary[str, asyncio.Lock]()
        self._working: set[asyncio.Task[None]] = set()
        self._aside: set[asyncio.Task[None]] = set()

    @property
    def working(self) -> frozenset[asyncio.Task[None]]:
        """All that is under way."""
        return frozenset(self._working)

    async def take(self, chat: str, work: Work, taken: Callable[[], None]) -> None:
        """Have an event taken, behind those of its chat that came before; then `taken` is called.
        Returns at once unless very many wait."""
        await self._room.acquire()
        self.begin(chat, work, taken).add_done_callback(lambda _: self._room.release())

    def begin(self, chat: str, work: Work, taken: Callable[[], None] = lambda: None) -> asyncio.Task[None]:
        """The same for something longer, which takes nobody's room."""
        lock = self._chats.setdefault(chat, asyncio.Lock())
        task = asyncio.create_task(self._in_turn(lock, work, taken), name="intake")
        self._working.add(task)
        task.add_done_callback(self._working.discard)
        return task

    def aside(self, work: Coroutine[Any, Any, None]) -> None:
        """Something that nothing waits for."""
        task = asyncio.create_task(work, name="aside")
        self._aside.add(task)
        task.add_done_callback(self._aside.discard)

    async def finish(self, within_s: float) -> None:
        """Give what is under way a moment."""
        if self._working:
            await asyncio.wait(self._working, timeout=within_s)

    async def close(self) -> None:
        """End what is under way: it is not taken, and comes again."""
        await cancel_all([*self._working, *self._aside])

    async def _in_turn(self, turn: asyncio.Lock, work: Work, taken: Callable[[], None]) -> None:
        async with turn:
            try:
                await surely(work)
                taken()
            except ChannelBroken as broken:
                self.why = broken
                self.broken.set()
                await asyncio.Event().wait()  # it is not taken


async def surely(work: Work) -> None:
    """Do it, as often as it takes: an event is held in memory until it is taken. Raises
    ChannelBroken."""
    waits, faults = full_jitter(FIRST_S, CAP_S), 0
    while True:
        wait_s = next(waits)
        try:
            await work()
            return
        except (Refused, Throttled) as exc:
            wait_s = max(wait_s, exc.retry_after_s)
        except (RedisAway, NotDelivered):
            pass
        except ChannelBroken:
            raise
        except Exception:
            faults += 1
            log.exception("event not taken", faults=faults)
            if faults == FAULTS:
                return
        await asyncio.sleep(wait_s)
