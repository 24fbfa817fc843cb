"""A page as thin as can be: a WebSocket client that costs so little that thousands fit beside a gateway."""

from __future__ import annotations

import asyncio
import base64
import os
import struct
from collections.abc import Callable
from typing import Any, Final, cast

import msgspec

Hear = Callable[[bytes], None]

_TEXT, _CLOSE, _PING, _PONG = 0x1, 0x8, 0x9, 0xA
_NO_MASK: Final = b"\0\0\0\0"  # a client must mask; with zeros the bytes stay as they are


class Page(asyncio.Protocol):
    """One connection. `hear` gets every text frame as it came."""

    def __init__(self, host: str, hear: Hear) -> None:
        self._host = host
        self._hear = hear
        self._came = b""
        self._open = False
        loop = asyncio.get_running_loop()
        self.ready: asyncio.Future[None] = loop.create_future()
        self.gone: asyncio.Future[None] = loop.create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._out = cast(asyncio.Transport, transport)  # uvloop's is none by its class
        key = base64.b64encode(os.urandom(16)).decode()
        self._out.write(
            f"GET /ws HTTP/1.1\r\nHost: {self._host}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            f"Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n\r\n".encode()
        )

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.gone.done():
            self.gone.set_result(None)
        if not self.ready.done():
            self.ready.set_exception(ConnectionError(f"{self._host} hung up: {self._came[:200]!r}"))

    def data_received(self, data: bytes) -> None:
        self._came += data
        if not self._open:
            head, end, rest = self._came.partition(b"\r\n\r\n")
            if not end:
                return
            if not head.startswith(b"HTTP/1.1 101"):
                self._out.close()
                return
            self._open, self._came = True, rest
            self.ready.set_result(None)
        while self._frame():
            pass

    def _frame(self) -> bool:
        """Take the next frame; whether there was a whole one. A server's frames are not masked, ours are not split."""
        came = self._came
        if len(came) < 2:
            return False
        kind, size, at = came[0] & 0x0F, came[1], 2
        if size == 126 and len(came) >= 4:
            (size,), at = struct.unpack_from("!H", came, 2), 4
        elif size == 127 and len(came) >= 10:
            (size,), at = struct.unpack_from("!Q", came, 2), 10
        elif size > 125:
            return False
        if len(came) < at + size:
            return False
        body, self._came = came[at : at + size], came[at + size :]
        if kind == _TEXT:
            self._hear(body)
        elif kind == _PING:
            self._send(_PONG, body)
        elif kind == _CLOSE:
            self._out.close()
        return True

    def say(self, kind: str, **fields: Any) -> None:
        """Send a frame."""
        self._send(_TEXT, msgspec.json.encode({"type": kind, **fields}))

    def _send(self, kind: int, body: bytes) -> None:
        size = len(body)
        head = bytes([0x80 | kind, 0x80 | size]) if size < 126 else struct.pack("!BBH", 0x80 | kind, 0xFE, size)
        self._out.write(head + _NO_MASK + body)

    def close(self) -> None:
        """Go, without a word."""
        self._out.abort()


async def open_page(address: str, token: str, hear: Hear) -> Page:
    """A page that is logged in, or will be as soon as the gateway has read it."""
    host, _, port = address.rpartition(":")
    _, page = await asyncio.get_running_loop().create_connection(lambda: Page(address, hear), host, int(port))
    await page.ready
    page.say("hello", token=token)
    return page
