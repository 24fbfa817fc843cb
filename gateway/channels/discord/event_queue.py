"""Run event handlers, in order within a chat, and track up to which event all are done."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final
from weakref import WeakValueDictionary

import msgspec

from gateway.platform.protocol import ChannelBroken, NotDelivered, Throttled
from shared.backoff import Backoff
from shared.errors import RedisAway, Refused
from shared.log import logger
from shared.tasks import cancel_all

MAX_PENDING: Final = 500  # events waiting or in progress; beyond this, reading pauses
FIRST_S: Final = 0.5
CAP_S: Final = 15.0
MAX_FAULTS: Final = 5  # an event that crashes our own code this often is skipped

Work = Callable[[], Awaitable[None]]

log = logger("discord")


class PendingEvent(msgspec.Struct):
    """An event: its sequence number, its time (ms, 0 = unknown), and whether it is done."""

    seq: int
    at_ms: int
    done: bool = False


class EventWindow:
    """A shard's events from the first that is not done: all up to `seq` and `since_ms` are."""

    def __init__(self, seq: int, since_ms: int) -> None:
        self.seq = seq
        self.since_ms = since_ms
        self._pending = deque[PendingEvent]()

    def append(self, seq: int, at_ms: int = 0) -> PendingEvent:
        """Add an event after all others."""
        event = PendingEvent(seq, at_ms)
        self._pending.append(event)
        return event

    def skip(self, seq: int) -> None:
        """Record an event that needs no work."""
        if self._pending and self._pending[-1].done:
            # Merging keeps the deque short while an earlier event blocks the window.
            self._pending[-1].seq = seq
        else:
            self.complete(self.append(seq))

    def complete(self, event: PendingEvent) -> None:
        """Mark an event as done: it need not be replayed."""
        event.done = True
        while self._pending and self._pending[0].done:
            first = self._pending.popleft()
            self.seq = first.seq
            self.since_ms = max(self.since_ms, first.at_ms)


class EventQueue:
    """The work in progress. `broken` is set, with `failure`, when an operator must intervene."""

    def __init__(self) -> None:
        self.broken = asyncio.Event()
        self.failure: ChannelBroken | None = None
        self.working: set[asyncio.Task[None]] = set()
        self._slots = asyncio.Semaphore(MAX_PENDING)
        self._chats = WeakValueDictionary[str, asyncio.Lock]()
        self._detached: set[asyncio.Task[None]] = set()

    async def submit(self, chat: str, work: Work, on_done: Callable[[], None]) -> None:
        """Run an event's handler after those of its chat, then `on_done`. Waits for a free
        place."""
        await self._slots.acquire()
        self.start(chat, work, on_done).add_done_callback(lambda _: self._slots.release())

    def start(self, chat: str, work: Work, on_done: Callable[[], None] = lambda: None) -> asyncio.Task[None]:
        """Run a longer task in the chat's order, without taking one of the slots."""
        lock = self._chats.setdefault(chat, asyncio.Lock())
        return _keep(self.working, self._run_in_order(lock, work, on_done))

    def start_detached(self, work: Coroutine[Any, Any, None]) -> None:
        """Run something that nothing waits for."""
        _keep(self._detached, work)

    async def finish(self, within_s: float) -> None:
        """Wait up to `within_s` seconds for work in progress."""
        if self.working:
            await asyncio.wait(self.working, timeout=within_s)

    async def close(self) -> None:
        """Cancel work in progress: those events are not done, and Discord replays them."""
        await cancel_all([*self.working, *self._detached])

    async def _run_in_order(self, lock: asyncio.Lock, work: Work, on_done: Callable[[], None]) -> None:
        async with lock:
            try:
                await _run_until_done(work)
                on_done()
            except ChannelBroken as broken:
                self.failure = broken
                self.broken.set()
                # Block instead of finishing: a finished task would mark the event as done.
                await asyncio.Event().wait()  # it is not taken


def _keep(tasks: set[asyncio.Task[None]], work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
    task = asyncio.create_task(work, name="intake")
    tasks.add(task)
    task.add_done_callback(tasks.discard)
    return task


async def _run_until_done(work: Work) -> None:
    """Retry until it succeeds: the event is held in memory meanwhile. Raises ChannelBroken."""
    backoff = Backoff(FIRST_S, CAP_S)
    faults = 0
    while True:
        wait_s = next(backoff)
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
            if faults == MAX_FAULTS:
                return
        await asyncio.sleep(wait_s)
