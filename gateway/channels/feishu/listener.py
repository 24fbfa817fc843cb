"""Listening over a long connection: what comes is taken, then confirmed; what is not confirmed
Feishu tells again, to whichever connection.

What is about one chat is taken in its order, chats beside each other.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Final, Protocol
from weakref import WeakValueDictionary

import msgspec

from gateway.channels.feishu.frames import DATA, BadFrame, Frame, Pieces, read_frame
from gateway.channels.feishu.wire import Pressed, Told, read_event
from gateway.platform.protocol import NotAccepted
from shared.backoff import full_jitter
from shared.errors import RedisAway, Refused
from shared.log import logger
from shared.tasks import cancel_all

AT_ONCE: Final = 200
"""So many events may be under way; then no more are read."""

HOLD_S: Final = 30.0
"""What cannot be taken for so long is left to another replica. It is nowhere but at Feishu
meanwhile, which tells it again after fifteen seconds, five minutes, an hour and six hours."""

PRESS_S: Final = 2.5
"""Who pressed a button is told within three seconds what became of it, and can press again: Feishu
does not."""

AGAIN_FIRST_S: Final = 0.05
AGAIN_CAP_S: Final = 1.0
FINISH_S: Final = 1.0

OK: Final = 200
NOT_TAKEN: Final = 500

log = logger("feishu")


class Socket(Protocol):
    """One connection."""

    async def receive(self) -> bytes | None: ...
    async def answer(self, frame: Frame, began_at: float, *, code: int, data: bytes | None = None) -> None: ...
    async def close(self) -> None: ...


class Listener:
    """Listens once: until it is told to end, or the connection is lost. `take` says what who
    pressed a button is shown."""

    def __init__(
        self,
        connect: Callable[[], Awaitable[Socket]],
        take: Callable[[Told], Awaitable[bytes | None]],
        *,
        hold_s: float = HOLD_S,
        press_s: float = PRESS_S,
    ) -> None:
        self._connect = connect
        self._take = take
        self._hold_s = hold_s
        self._press_s = press_s
        self._pieces = Pieces()
        self._under_way: set[asyncio.Task[None]] = set()
        self._room = asyncio.Semaphore(AT_ONCE)
        self._chats = WeakValueDictionary[str, asyncio.Lock]()
        self._news = asyncio.Event()
        self._broke: Exception | None = None

    async def listen(self, until: asyncio.Event) -> None:
        """Raises NotAccepted when the connection is lost, ChannelBroken, RedisAway, Refused."""
        socket = await self._connect()
        reader = asyncio.create_task(self._read(socket), name="socket")
        ending = asyncio.create_task(until.wait())
        for task in (reader, ending):
            task.add_done_callback(lambda _: self._news.set())
        try:
            await self._news.wait()
            if self._broke is not None:
                raise self._broke
            if not until.is_set():
                reader.result()
                raise NotAccepted("the connection to Feishu is lost")
            await cancel_all([reader])  # no more is read; what is under way can still be confirmed
            if self._under_way:
                await asyncio.wait(self._under_way, timeout=FINISH_S)
        finally:
            try:
                await cancel_all([ending, reader, *self._under_way])
            finally:
                await socket.close()

    async def _read(self, socket: Socket) -> None:
        """Begin with everything that comes, until the connection is over."""
        while (data := await socket.receive()) is not None:
            try:
                frame = read_frame(data)
                if frame.method != DATA:
                    continue
                payload = self._pieces.whole(frame)
            except BadFrame as exc:
                log.warning("frame not understood", why=str(exc))
                continue
            if payload is not None:
                await self._room.acquire()
                taking = asyncio.create_task(self._answer(socket, frame, payload), name="event")
                self._under_way.add(taking)
                taking.add_done_callback(self._done)

    async def _answer(self, socket: Socket, frame: Frame, payload: bytes) -> None:
        began_at, shown = time.monotonic(), None
        try:
            told = read_event(payload)
        except (msgspec.DecodeError, RecursionError) as exc:
            log.warning("event not understood", why=type(exc).__name__)
            told = None
        if isinstance(told, Told):
            try:
                async with self._chats.setdefault(told.chat, asyncio.Lock()):
                    shown = await self._take_in_time(told)
            except Exception as exc:
                await socket.answer(frame, began_at, code=NOT_TAKEN)
                if isinstance(told.event, Pressed) and isinstance(exc, RedisAway | Refused):
                    return  # whoever pressed it sees that it did not work
                raise
        await socket.answer(frame, began_at, code=OK, data=shown)

    async def _take_in_time(self, told: Told) -> bytes | None:
        now = asyncio.get_running_loop().time
        give_up_at = now() + (self._press_s if isinstance(told.event, Pressed) else self._hold_s)
        for wait_s in full_jitter(AGAIN_FIRST_S, AGAIN_CAP_S):
            try:
                return await self._take(told)
            except (RedisAway, Refused) as exc:
                again_s = max(wait_s, exc.retry_after_s) if isinstance(exc, Refused) else wait_s
                if now() + again_s > give_up_at:
                    raise
            await asyncio.sleep(again_s)
        return None

    def _done(self, task: asyncio.Task[None]) -> None:
        self._under_way.discard(task)
        self._room.release()
        if task.cancelled() or (broke := task.exception()) is None:
            return
        if not isinstance(broke, RedisAway | Refused):
            log.error("event not taken", exc_info=broke)  # it is told again, and others are not kept waiting
        else:
            self._broke = broke
            self._news.set()
