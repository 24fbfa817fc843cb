"""Accept the events of a socket: those of one chat in order, chats in parallel."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final, TypeVar
from weakref import WeakValueDictionary

from shared.backoff import Backoff
from shared.errors import RedisAway, Refused
from shared.log import logger

AT_ONCE: Final = 200
"""At most this many events are in progress; then reading pauses."""

HOLD_S: Final = 30.0
"""An event that cannot be accepted for this long is left to another replica. Meanwhile it exists
only at the platform, which repeats what is not acknowledged."""

AGAIN_FIRST_S: Final = 0.05
AGAIN_CAP_S: Final = 1.0
FINISH_S: Final = 1.0

T = TypeVar("T")


class OrderedEvents:
    """The events in progress. `on_failure` is called when one could not be accepted in time;
    `failure` is then why, and the listener should end. `name` is that of the log."""

    def __init__(self, name: str, on_failure: Callable[[], None]) -> None:
        self.failure: Exception | None = None
        self.tasks: set[asyncio.Task[None]] = set()
        self._on_failure = on_failure
        self._slots = asyncio.Semaphore(AT_ONCE)
        # Weak values: the lock of a chat lives as long as one of its events holds or awaits it.
        self._chats = WeakValueDictionary[str, asyncio.Lock]()
        self._log = logger(name)

    async def start(self, handle: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Handle an event in a task of its own. Waits while too many are in progress."""
        await self._slots.acquire()
        task = asyncio.create_task(handle(), name="event")
        self.tasks.add(task)
        task.add_done_callback(self._on_done)

    async def accept(self, chat: str, accept: Callable[[], Awaitable[T]], *, hold_s: float = HOLD_S) -> T:
        """Return what `accept` does, after earlier events of the chat. It is retried for `hold_s`
        seconds; then RedisAway or Refused is raised."""
        now = asyncio.get_running_loop().time
        async with self._chats.setdefault(chat, asyncio.Lock()):
            give_up_at, waits = now() + hold_s, Backoff(AGAIN_FIRST_S, AGAIN_CAP_S)
            while True:
                again_s = next(waits)
                try:
                    return await accept()
                except (RedisAway, Refused) as exc:
                    again_s = max(again_s, exc.retry_after_s) if isinstance(exc, Refused) else again_s
                    if now() + again_s > give_up_at:
                        raise
                await asyncio.sleep(again_s)

    async def finish(self) -> None:
        """Give the events in progress a moment."""
        if self.tasks:
            await asyncio.wait(self.tasks, timeout=FINISH_S)

    def _on_done(self, task: asyncio.Task[None]) -> None:
        self.tasks.discard(task)
        self._slots.release()
        if task.cancelled() or (error := task.exception()) is None:
            return
        if isinstance(error, RedisAway | Refused):
            self.failure = error
            self._on_failure()
        else:  # a bug in one event's code: the platform repeats it, and the others go on
            self._log.error("event not accepted", exc_info=error)
