"""Listen over a long connection: an event is acknowledged after it was accepted; Feishu repeats
what is not acknowledged, on any connection.

Events of one chat are accepted in order, chats in parallel.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Final, Protocol
from weakref import WeakValueDictionary

import msgspec

from gateway.channels.feishu.frames import DATA, FeishuFrame, FramePieces, UnreadableFrame, read_frame
from gateway.channels.feishu.wire import CardPressed, FeishuEvent, read_event
from gateway.platform.protocol import NotAccepted
from shared.backoff import full_jitter
from shared.errors import RedisAway, Refused
from shared.log import logger
from shared.tasks import cancel_all

AT_ONCE: Final = 200
"""At most this many events are in progress; then reading pauses."""

HOLD_S: Final = 30.0
"""An event that cannot be accepted for this long is left to another replica. Meanwhile it exists
only at Feishu, which repeats it after fifteen seconds, five minutes, an hour and six hours."""

PRESS_S: Final = 2.5
"""A press must be answered within three seconds and is not repeated by Feishu; the person can press
again."""

AGAIN_FIRST_S: Final = 0.05
AGAIN_CAP_S: Final = 1.0
FINISH_S: Final = 1.0

OK: Final = 200
NOT_ACCEPTED: Final = 500

log = logger("feishu")


class FrameSocket(Protocol):
    """One long connection, as the listener needs it."""

    async def receive(self) -> bytes | None: ...
    async def acknowledge(
        self, frame: FeishuFrame, began_at: float, *, code: int, data: bytes | None = None
    ) -> None: ...
    async def close(self) -> None: ...


class LongConnectionListener:
    """One run of listening: it ends on request or when the connection is lost. `take` returns the
    toast for a pressed button."""

    def __init__(
        self,
        connect: Callable[[], Awaitable[FrameSocket]],
        take: Callable[[FeishuEvent], Awaitable[bytes | None]],
        *,
        hold_s: float = HOLD_S,
        press_s: float = PRESS_S,
    ) -> None:
        self._connect = connect
        self._take = take
        self._hold_s = hold_s
        self._press_s = press_s
        self._pieces = FramePieces()
        self._under_way: set[asyncio.Task[None]] = set()
        self._slots = asyncio.Semaphore(AT_ONCE)
        self._chats = WeakValueDictionary[str, asyncio.Lock]()
        self._news = asyncio.Event()
        self._broke: Exception | None = None

    async def run(self, until: asyncio.Event) -> None:
        """Listen until `until` is set. Raises NotAccepted when the connection is lost,
        ChannelBroken, RedisAway, Refused."""
        socket = await self._connect()
        reader = asyncio.create_task(self._read_frames(socket), name="socket")
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

    async def _read_frames(self, socket: FrameSocket) -> None:
        """Start handling every event that arrives, until the connection ends."""
        while (data := await socket.receive()) is not None:
            try:
                frame = read_frame(data)
                if frame.method != DATA:
                    continue
                payload = self._pieces.whole(frame)
            except UnreadableFrame as exc:
                log.warning("frame not understood", why=str(exc))
                continue
            if payload is not None:
                await self._slots.acquire()
                taking = asyncio.create_task(self._handle_frame(socket, frame, payload), name="event")
                self._under_way.add(taking)
                taking.add_done_callback(self._done)

    async def _handle_frame(self, socket: FrameSocket, frame: FeishuFrame, payload: bytes) -> None:
        began_at, shown = time.monotonic(), None
        try:
            event = read_event(payload)
        except (msgspec.DecodeError, RecursionError) as exc:
            log.warning("event not understood", why=type(exc).__name__)
            event = None
        if isinstance(event, FeishuEvent):
            try:
                async with self._chats.setdefault(event.chat, asyncio.Lock()):
                    shown = await self._take_in_time(event)
            except Exception as exc:
                await socket.acknowledge(frame, began_at, code=NOT_ACCEPTED)
                if isinstance(event.event, CardPressed) and isinstance(exc, RedisAway | Refused):
                    return  # whoever pressed it sees that it did not work
                raise
        await socket.acknowledge(frame, began_at, code=OK, data=shown)

    async def _take_in_time(self, event: FeishuEvent) -> bytes | None:
        now = asyncio.get_running_loop().time
        give_up_at = now() + (self._press_s if isinstance(event.event, CardPressed) else self._hold_s)
        for wait_s in full_jitter(AGAIN_FIRST_S, AGAIN_CAP_S):
            try:
                return await self._take(event)
            except (RedisAway, Refused) as exc:
                again_s = max(wait_s, exc.retry_after_s) if isinstance(exc, Refused) else wait_s
                if now() + again_s > give_up_at:
                    raise
            await asyncio.sleep(again_s)
        return None

    def _done(self, task: asyncio.Task[None]) -> None:
        self._under_way.discard(task)
        self._slots.release()
        if task.cancelled() or (broke := task.exception()) is None:
            return
        if not isinstance(broke, RedisAway | Refused):
            log.error("event not taken", exc_info=broke)  # it is told again, and others are not kept waiting
        else:
            self._broke = broke
            self._news.set()
