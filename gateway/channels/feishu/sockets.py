"""Long connections (open.feishu.cn/document, "Receive events over a long connection"), opened and
nothing more. `listener.py` says what happens on one."""

from __future__ import annotations

import asyncio
import base64
import time
from collections.abc import Mapping
from typing import Final
from urllib.parse import parse_qs, urlsplit

import msgspec
from aiohttp import ClientError, ClientWebSocketResponse, ClientWSTimeout, WSMsgType, WSServerHandshakeError

from gateway.channels.feishu.calls import Calls
from gateway.channels.feishu.frames import BIZ_RT, Frame, ping, write_frame
from gateway.channels.feishu.refusals import Said, no_connection
from gateway.platform.protocol import NotAccepted
from shared.tasks import cancel_all

HEARTBEAT_S: Final = 20.0
"""After half of that without a sign of life the connection is over."""

CLOSE_S: Final = 1.0
FRAME_BYTES: Final = 4 * 1024 * 1024
PINGS_S: Final = (5.0, 120.0)
"""Feishu says how often it wants to be pinged; within these."""


class _Config(msgspec.Struct, frozen=True):
    ping_s: float = msgspec.field(name="PingInterval", default=PINGS_S[1])


class _Endpoint(msgspec.Struct, frozen=True):
    url: str = msgspec.field(name="URL", default="")
    config: _Config | None = msgspec.field(name="ClientConfig", default=None)


class _Ack(msgspec.Struct, frozen=True, omit_defaults=True):
    code: int
    data: str = ""


class Connection:
    """One socket. `service` is the number of the app that Feishu gave it, `ping_s` how often it
    wants a ping."""

    def __init__(self, socket: ClientWebSocketResponse, service: int, ping_s: float) -> None:
        self._socket = socket
        self._service = service
        self._ping_s = ping_s
        self._pinging = asyncio.create_task(self._ping(), name="ping")

    async def receive(self) -> bytes | None:
        """The next frame; None when the connection is over."""
        while True:
            message = await self._socket.receive()
            if message.type is WSMsgType.BINARY:
                data: bytes = message.data
                return data
            if message.type is not WSMsgType.TEXT:
                return None

    async def answer(self, frame: Frame, began_at: float, *, code: int, data: bytes | None = None) -> None:
        """What became of it. Over a connection that is gone nothing can be said, and it is told
        again."""
        took_ms = str(round((time.monotonic() - began_at) * 1000))
        body = _Ack(code, base64.b64encode(data).decode() if data is not None else "")
        await self._send(
            msgspec.structs.replace(
                frame, headers=(*frame.headers, (BIZ_RT, took_ms)), payload=msgspec.json.encode(body)
            )
        )

    async def close(self) -> None:
        await cancel_all([self._pinging])
        await self._socket.close()

    async def _ping(self) -> None:
        while True:
            await self._send(ping(self._service))
            await asyncio.sleep(self._ping_s)

    async def _send(self, frame: Frame) -> None:
        try:
            await self._socket.send_bytes(write_frame(frame))
        except (ClientError, ConnectionError, RuntimeError):
            return


async def connect(calls: Calls) -> Connection:
    """One more connection. Raises ChannelBroken, NotAccepted."""
    try:
        told = msgspec.json.decode((await calls.endpoint()).data, type=_Endpoint)
    except Said as said:
        raise no_connection(said) from said
    except msgspec.DecodeError as exc:
        raise NotAccepted("an answer of no known form") from exc
    if not told.url.startswith(("wss://", calls.server.replace("http", "ws", 1) + "/")):
        raise NotAccepted("Feishu told no address for a connection")
    try:
        socket = await calls.http.ws_connect(
            told.url,
            heartbeat=HEARTBEAT_S,
            timeout=ClientWSTimeout(ws_close=CLOSE_S),
            max_msg_size=FRAME_BYTES,
        )
    except WSServerHandshakeError as exc:
        raise no_connection(_handshake(exc)) from exc
    except (ClientError, TimeoutError) as exc:
        raise NotAccepted(f"no connection: {type(exc).__name__}") from exc
    low, high = PINGS_S
    return Connection(socket, _service(told.url), min(high, max(low, told.config.ping_s if told.config else high)))


def _handshake(exc: WSServerHandshakeError) -> Said:
    """The code of the handshake; behind 514, why the app was not let in."""
    headers: Mapping[str, str] = exc.headers or {}
    codes = [headers.get(name, "") for name in ("handshake-autherrcode", "handshake-status")]
    numbers = [int(code) for code in codes if code.isascii() and code.isdigit() and code != "0"]
    return Said(exc.status, numbers[0] if numbers else exc.status)


def _service(url: str) -> int:
    found = parse_qs(urlsplit(url).query).get("service_id", ["0"])[0]
    return int(found) if found.isascii() and found.isdigit() and len(found) < 10 else 0
