"""Listen over long connections (open.feishu.cn/document, "Receive events over a long connection").

An event is acknowledged after it was accepted; Feishu repeats what is not acknowledged, on any
connection: after fifteen seconds, five minutes, an hour and six hours.
"""

from __future__ import annotations

import asyncio
import base64
import time
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Final, Protocol
from urllib.parse import parse_qs, urlsplit

import msgspec
from aiohttp import ClientError, ClientWebSocketResponse, ClientWSTimeout, WSMsgType, WSServerHandshakeError
from msgspec.structs import replace

from gateway.channels.feishu.calls import FeishuCalls
from gateway.channels.feishu.frames import (
    DATA,
    FeishuFrame,
    FramePieces,
    UnreadableFrame,
    ping,
    read_frame,
    write_frame,
)
from gateway.channels.feishu.refusals import FeishuError, map_connect_error
from gateway.channels.feishu.wire import CardPressed, FeishuEvent, read_event
from gateway.channels.sockets import HOLD_S, SocketEvents
from gateway.platform.protocol import NotAccepted
from shared.errors import RedisAway, Refused
from shared.log import logger
from shared.tasks import cancel_all

HEARTBEAT_S: Final = 20.0
"""A connection silent for half of this after a ping is over."""

CLOSE_S: Final = 1.0
FRAME_BYTES: Final = 4 * 1024 * 1024
PINGS_S: Final = (5.0, 120.0)
"""Bounds for the ping interval that Feishu asks for."""

PRESS_S: Final = 2.5
"""A press must be answered within three seconds; it is not repeated, but may be made again."""

OK: Final = 200
NOT_ACCEPTED: Final = 500

log = logger("feishu")


class _Config(msgspec.Struct, frozen=True):
    ping_s: float = msgspec.field(name="PingInterval", default=PINGS_S[1])


class _Endpoint(msgspec.Struct, frozen=True):
    url: str = msgspec.field(name="URL", default="")
    config: _Config | None = msgspec.field(name="ClientConfig", default=None)


class _Ack(msgspec.Struct, frozen=True, omit_defaults=True):
    code: int
    data: str = ""


class FrameSocket(Protocol):
    """One long connection, as the listener needs it."""

    async def receive(self) -> bytes | None: ...
    async def acknowledge(
        self, frame: FeishuFrame, began_at: float, *, code: int, data: bytes | None = None
    ) -> None: ...
    async def close(self) -> None: ...


class LongConnection:
    """One WebSocket. `service` is the app's number at Feishu, `ping_s` the ping interval."""

    def __init__(self, socket: ClientWebSocketResponse, service: int, ping_s: float) -> None:
        self._socket = socket
        self._service = service
        self._ping_s = ping_s
        self._pinging = asyncio.create_task(self._ping(), name="ping")

    async def receive(self) -> bytes | None:
        """Return the next frame, None once the connection is closed."""
        while True:
            message = await self._socket.receive()
            if message.type is WSMsgType.BINARY:
                data: bytes = message.data
                return data
            if message.type is not WSMsgType.TEXT:
                return None

    async def acknowledge(self, frame: FeishuFrame, began_at: float, *, code: int, data: bytes | None = None) -> None:
        """Report the outcome of an event. If the connection is gone, Feishu repeats the event."""
        took_ms = str(round((time.monotonic() - began_at) * 1000))
        body = _Ack(code, base64.b64encode(data).decode() if data is not None else "")
        headers = (*frame.headers, ("biz_rt", took_ms))
        await self._send(replace(frame, headers=headers, payload=msgspec.json.encode(body)))

    async def close(self) -> None:
        await cancel_all([self._pinging])
        await self._socket.close()

    async def _ping(self) -> None:
        while True:
            await self._send(ping(self._service))
            await asyncio.sleep(self._ping_s)

    async def _send(self, frame: FeishuFrame) -> None:
        try:
            await self._socket.send_bytes(write_frame(frame))
        except (ClientError, ConnectionError, RuntimeError):
            return


async def open_connection(calls: FeishuCalls) -> LongConnection:
    """Open one more connection. Raises ChannelBroken, NotAccepted."""
    try:
        endpoint = msgspec.json.decode((await calls.request_endpoint()).data, type=_Endpoint)
    except FeishuError as error:
        raise map_connect_error(error) from error
    except msgspec.DecodeError as exc:
        raise NotAccepted("an answer of no known form") from exc
    if not endpoint.url.startswith(("wss://", calls.http.base.replace("http", "ws", 1) + "/")):
        raise NotAccepted("Feishu told no address for a connection")
    try:
        socket = await calls.http.session.ws_connect(
            endpoint.url,
            heartbeat=HEARTBEAT_S,
            timeout=ClientWSTimeout(ws_close=CLOSE_S),
            max_msg_size=FRAME_BYTES,
        )
    except WSServerHandshakeError as exc:
        # The code of a failed handshake; for 514 the more precise auth code.
        headers: Mapping[str, str] = exc.headers or {}
        codes = [headers.get(name, "") for name in ("handshake-autherrcode", "handshake-status")]
        numbers = [int(code) for code in codes if code.isascii() and code.isdigit() and code != "0"]
        code = numbers[0] if numbers else exc.status
        raise map_connect_error(FeishuError(exc.status, code)) from exc
    except (ClientError, TimeoutError) as exc:
        raise NotAccepted(f"no connection: {type(exc).__name__}") from exc
    low, high = PINGS_S
    service = parse_qs(urlsplit(endpoint.url).query).get("service_id", ["0"])[0]
    is_number = service.isascii() and service.isdigit() and len(service) < 10
    ping_s = min(high, max(low, endpoint.config.ping_s if endpoint.config else high))
    return LongConnection(socket, int(service) if is_number else 0, ping_s)


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
        began_at, toast = time.monotonic(), None
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
