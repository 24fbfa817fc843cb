"""One long connection: opened, kept alive by pings, read and acknowledged."""

from __future__ import annotations

import asyncio
import base64
import time
from collections.abc import Mapping
from functools import partial
from typing import Final
from urllib.parse import parse_qs, urlsplit

import msgspec
from aiohttp import ClientError, ClientWebSocketResponse, ClientWSTimeout, WSMsgType, WSServerHandshakeError
from msgspec.structs import replace

from gateway.channels.feishu.calls import FeishuCalls
from gateway.channels.feishu.frames import FeishuFrame, ping, write_frame
from gateway.channels.feishu.refusals import FeishuError, map_connect_error
from gateway.platform.protocol import NotAccepted
from shared.tasks import cancel_all, close_all

HEARTBEAT_S: Final = 20.0  # a connection silent for half of this after a ping is over
CLOSE_S: Final = 1.0
FRAME_BYTES: Final = 4 * 1024 * 1024
PINGS_S: Final = (5.0, 120.0)  # bounds for the ping interval that Feishu asks for


class _Config(msgspec.Struct, frozen=True):
    ping_s: float = msgspec.field(name="PingInterval", default=PINGS_S[1])


class _Endpoint(msgspec.Struct, frozen=True):
    url: str = msgspec.field(name="URL", default="")
    config: _Config | None = msgspec.field(name="ClientConfig", default=None)


class _Ack(msgspec.Struct, frozen=True, omit_defaults=True):
    code: int
    data: str = ""


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
        await close_all(partial(cancel_all, [self._pinging]), self._socket.close)

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
