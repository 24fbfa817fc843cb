"""Listen over long connections (open.feishu.cn/document, "Receive events over a long connection").

An event is acknowledged after it was accepted; Feishu repeats what is not acknowledged, on any
connection: after fifteen seconds, five minutes, an hour and six hours.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final, Protocol

import msgspec

from gateway.channels.feishu.frames import DATA, FeishuFrame, FramePieces, UnreadableFrame, read_frame
from gateway.channels.feishu.wire import CardPressed, FeishuEvent, read_event
from gateway.channels.sockets import HOLD_S, SocketEvents
from shared.errors import RedisAway, Refused
from shared.log import logger

PRESS_S: Final = 2.5
"""A press must be answered within three seconds; it is not repeated, but may be made again."""

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
    """One run of listening to a connection. `accept` returns the toast for a pressed button."""

    def __init__(
        self,
        connect: Callable[[], Awaitable[FrameSocket]],
        accept: Callable[[FeishuEvent], Awaitable[bytes | None]],
        *,
        hold_s: float = HOLD_S,
        press_s: float = PRESS_S,
    ) -> None:
        self._accept = accept
        self._hold_s = hold_s
        self._press_s = press_s
        self._pieces = FramePieces()
        self._events = SocketEvents("Feishu", connect, self._read_frames)
        self.run = self._events.run

    async def _read_frames(self, socket: FrameSocket) -> None:
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
                await self._events.start(partial(self._handle_event, socket, frame, payload))

    async def _handle_event(self, socket: FrameSocket, frame: FeishuFrame, payload: bytes) -> None:
        began_at = time.monotonic()
        toast = None
        try:
            event = read_event(payload)
        except (msgspec.DecodeError, RecursionError) as exc:
            log.warning("event not understood", why=type(exc).__name__)
            event = None
        if isinstance(event, FeishuEvent):
            is_press = isinstance(event.event, CardPressed)
            hold_s = self._press_s if is_press else self._hold_s
            try:
                toast = await self._events.accept(event.chat, partial(self._accept, event), hold_s)
            except Exception as exc:
                await socket.acknowledge(frame, began_at, code=NOT_ACCEPTED)
                if is_press and isinstance(exc, RedisAway | Refused):
                    return  # the person sees that it failed; the listener need not end for it
                raise
        await socket.acknowledge(frame, began_at, code=OK, data=toast)
