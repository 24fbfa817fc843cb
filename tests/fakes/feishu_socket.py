"""The side of Feishu that apps reach by a long connection.

An address is good for one connection. Each event goes to one of them, chosen at random; what is not confirmed with 200
in time, or was sent over a connection that has ended, is told again. Events of a chat of which one is not confirmed yet
go over the same connection: people do not write faster than that.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import random
import secrets
from typing import Any, Final

from aiohttp import WSMsgType, web

from gateway.channels.feishu.frames import CONTROL, DATA, FeishuFrame, read_frame, write_frame

SOCKETS: Final = 50
SERVICE: Final = 33554678


class _Event:
    """Something to be told until it is confirmed; `is_press` once."""

    def __init__(self, id: str, payload: bytes, chat: str, *, is_press: bool) -> None:
        self.id, self.payload, self.chat, self.is_press = id, payload, chat, is_press
        self.tries = 0
        self.over: web.WebSocketResponse | None = None
        self.sent_at = 0.0


class FeishuSockets:
    """`again_s`: what was not confirmed for so long is told again; Feishu itself waits for fifteen seconds. What is
    longer than `piece_bytes` comes in several frames."""

    def __init__(self, *, again_s: float = 1.0) -> None:
        self.again_s = again_s
        self.piece_bytes = 4096
        self.open: list[web.WebSocketResponse] = []
        self.tickets: set[str] = set()
        self.answers: dict[str, tuple[int, Any]] = {}
        """What was said to an event: its code, and its data."""

        self.pings = 0
        self.refusal: dict[str, str] | None = None
        """Headers with which a handshake is refused."""

        self._events: list[_Event] = []
        self._news = asyncio.Event()

    def ticket(self) -> str:
        """One more address."""
        self.tickets.add(ticket := secrets.token_hex(8))
        return ticket

    def tell(self, id: str, event: dict[str, Any], chat: str, *, is_press: bool = False) -> None:
        """Tell it, to whoever listens."""
        self._events.append(_Event(id, json.dumps(event).encode(), chat, is_press=is_press))
        self._news.set()

    async def say(self, data: bytes) -> None:
        """These bytes come over every connection."""
        for socket in list(self.open):
            await socket.send_bytes(data)

    def cut(self) -> None:
        """All connections end without a word."""
        for socket in self.open:
            transport = socket._req.transport if socket._req is not None else None
            if transport is not None:
                transport.abort()

    async def run(self) -> None:
        """Tell what is to be told."""
        while True:
            self._news.clear()
            now = asyncio.get_running_loop().time()
            for event in list(self._events):
                if event.over is not None and event.over.closed:
                    event.over = None
                late = event.over is not None and now - event.sent_at > self.again_s
                if event.is_press and event.tries:
                    continue
                if (event.over is None or late) and self.open:
                    await self._send(event, now)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self.again_s / 4):
                    await self._news.wait()

    async def _send(self, event: _Event, now: float) -> None:
        busy = [one.over for one in self._events if one.chat == event.chat and one.over in self.open and one.over]
        event.over = busy[0] if busy else random.choice(self.open)
        event.sent_at = now
        event.tries += 1
        size = self.piece_bytes
        pieces = [event.payload[at : at + size] for at in range(0, len(event.payload), size)]
        for number, piece in enumerate(pieces):
            headers = {
                "type": "event", "message_id": event.id, "trace_id": f"t-{event.id}", "sum": str(len(pieces)),
                "seq": str(number),
            }  # fmt: skip
            frame = FeishuFrame(
                seq_id=7, log_id=9, service=SERVICE, method=DATA, headers=tuple(headers.items()), payload=piece
            )
            with contextlib.suppress(ConnectionError, RuntimeError):
                await event.over.send_bytes(write_frame(frame))

    async def link(self, request: web.Request) -> web.StreamResponse:
        """A connection."""
        ticket = request.query.get("device_id", "")
        if self.refusal is not None:
            return web.Response(status=403, headers=self.refusal)
        if ticket not in self.tickets:
            raise web.HTTPForbidden
        self.tickets.remove(ticket)
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        self.open.append(socket)
        self._news.set()
        try:
            async for message in socket:
                if message.type is WSMsgType.BINARY:
                    await self._on_frame(socket, read_frame(message.data))
        finally:
            self.open.remove(socket)
            self._news.set()
        return socket

    async def _on_frame(self, socket: web.WebSocketResponse, frame: FeishuFrame) -> None:
        if frame.method == CONTROL:
            assert (frame.header("type"), frame.service) == ("ping", SERVICE)
            self.pings += 1
            config = json.dumps(
                {"ReconnectCount": -1, "ReconnectInterval": 120, "ReconnectNonce": 30, "PingInterval": 120}
            )
            headers = (("type", "pong"),)
            await socket.send_bytes(write_frame(FeishuFrame(service=SERVICE, headers=headers, payload=config.encode())))
            return
        assert frame.header("biz_rt").isdigit()
        event = json.loads(frame.payload)
        data = json.loads(base64.b64decode(event["data"])) if event.get("data") else None
        self.answers[frame.header("message_id")] = event["code"], data
        if event["code"] == 200:
            self._events = [event for event in self._events if event.id != frame.header("message_id")]
