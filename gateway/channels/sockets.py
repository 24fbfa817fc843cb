"""Listen on sockets: accept their events, those of one chat in order, chats in parallel."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final, Generic, Protocol, TypeVar
from weakref import WeakValueDictionary

from gateway.platform.protocol import NotAccepted
from shared.backoff import Backoff
from shared.errors import RedisAway, Refused
from shared.log import logger
from shared.tasks import cancel_all

AT_ONCE: Final = 200  # at most this many events are in progress; then reading pauses
HOLD_S: Final = 30.0
"""An event that cannot be accepted for this long is left to another replica. Meanwhile it exists
only at the platform, which repeats what is not acknowledged."""

AGAIN_FIRST_S: Final = 0.05
AGAIN_CAP_S: Final = 1.0
FINISH_S: Final = 1.0


class Socket(Protocol):
    """A connection to the platform."""

    async def close(self) -> None: ...


T = TypeVar("T")
S = TypeVar("S", bound=Socket)


class SocketEvents(Generic[S]):
    """One run of listening to a platform: `connect` opens a socket, `read` starts its events until
    it ends. After `refresh` another one is opened while the old one is still read."""

    def __init__(
        self, platform: str, connect: Callable[[], Awaitable[S]], read: Callable[[S], Coroutine[Any, Any, None]]
    ) -> None:
        self.tasks: set[asyncio.Task[None]] = set()  # the events in progress
        self._platform = platform
        self._connect = connect
        self._read = read
        self._sockets: dict[asyncio.Task[None], S] = {}
        self._failure: Exception | None = None
        self._news = asyncio.Event()
        self._stale = False
        self._slots = asyncio.Semaphore(AT_ONCE)
        # Weak values: the lock of a chat lives as long as one of its events holds or awaits it.
        self._chats = WeakValueDictionary[str, asyncio.Lock]()

    async def run(self, until: asyncio.Event) -> None:
        """Listen until `until` is set. Raises NotAccepted when the connection is lost, RedisAway
        and Refused when an event was not accepted in time, and what `connect` and `read` raise."""
        ending = asyncio.create_task(until.wait())
        ending.add_done_callback(lambda _: self._news.set())
        try:
            newest = await self._open_socket()
            while not until.is_set():
                await self._news.wait()
                self._news.clear()
                if self._failure is not None:
                    raise self._failure
                if newest.done():
                    newest.result()
                    raise NotAccepted(f"the connection to {self._platform} is lost")
                if self._stale:
                    self._stale = False
                    newest = await self._open_socket()
                for reader in [reader for reader in self._sockets if reader.done()]:
                    await self._sockets.pop(reader).close()
                    reader.result()
            # Reading ends first; events in progress can still be acknowledged.
            await cancel_all(self._sockets)
            if self.tasks:
                await asyncio.wait(self.tasks, timeout=FINISH_S)
        finally:
            try:
                await cancel_all([ending, *self._sockets, *self.tasks])
            finally:
                closing = (socket.close() for socket in self._sockets.values())
                await asyncio.gather(*closing, return_exceptions=True)

    def refresh(self) -> None:
        """Open another socket soon: the platform will close this one."""
        self._stale = True
        self._news.set()

    async def start(self, handle: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Handle an event in a task of its own. Waits while too many are in progress."""
        await self._slots.acquire()
        task = asyncio.create_task(handle(), name="event")
        self.tasks.add(task)
        task.add_done_callback(self._on_done)

    async def accept(self, chat: str, accept: Callable[[], Awaitable[T]], hold_s: float) -> T:
        """Return what `accept` does, after earlier events of the chat. It is retried for `hold_s`
        seconds; then RedisAway or Refused is raised."""
        now = asyncio.get_running_loop().time
        async with self._chats.setdefault(chat, asyncio.Lock()):
            give_up_at = now() + hold_s
            waits = Backoff(AGAIN_FIRST_S, AGAIN_CAP_S)
            while True:
                again_s = next(waits)
                try:
                    return await accept()
                except (RedisAway, Refused) as exc:
                    again_s = max(again_s, getattr(exc, "retry_after_s", 0.0))
                    if now() + again_s > give_up_at:
                        raise
                await asyncio.sleep(again_s)

    async def _open_socket(self) -> asyncio.Task[None]:
        socket = await self._connect()
        reader = asyncio.create_task(self._read(socket), name="socket")
        reader.add_done_callback(lambda _: self._news.set())
        self._sockets[reader] = socket
        return reader

    def _on_done(self, task: asyncio.Task[None]) -> None:
        self.tasks.discard(task)
        self._slots.release()
        if task.cancelled() or (error := task.exception()) is None:
            return
        if isinstance(error, RedisAway | Refused):
            self._failure = error
            self._news.set()
        else:  # a bug in one event's code: the platform repeats it, and the others go on
            logger(self._platform.lower()).error("event not accepted", exc_info=error)
