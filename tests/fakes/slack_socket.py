"""The side of Slack that apps reach by Socket Mode (docs.slack.dev/apis/events-api/using-socket-mode).

An address is good for one connection. Each event goes to one connection; what is not confirmed in time, or was sent
over a connection that has ended, is told again. Events of a chat of which one is not confirmed yet go over the same
connection: people do not write faster than that.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import random
import secrets
from typing import Any, Final

from aiohttp import WSMsgType, web

SOCKETS: Final = 10


class _Event:
    """Something to be told until it is confirmed."""

    def __init__(self, id: str, kind: str, payload: dict[str, Any], chat: str) -> None:
        self.id, self.kind, self.payload, self.chat = id, kind, payload, chat
        self.tries = 0
        self.over: web.WebSocketResponse | None = None
        self.sent_at = 0.0


class SlackSockets:
    """`again_s`: what was not confirmed for so long is told again; Slack itself waits for three seconds."""

    def __init__(self, *, again_s: float = 1.0) -> None:
        self.again_s = again_s
        self.open: list[web.WebSocketResponse] = []
        self.confirmed: list[str] = []
        self.tickets: set[str] = set()
        self.greeting: dict[str, Any] | None = None
        """What a new connection hears instead of hello."""

        self._events: list[_Event] = []
        self._ids = itertools.count(1)
        self._news = asyncio.Event()

    def ticket(self) -> str:
        """One more address."""
        self.tickets.add(ticket := secrets.token_hex(8))
        return ticket

    def tell(self, kind: str, payload: dict[str, Any], chat: str) -> str:
        """Something happened; its envelope."""
        event = _Event(f"envelope-{next(self._ids)}", kind, payload, chat)
        self._events.append(event)
        self._news.set()
        return event.id

    async def say(self, frame: dict[str, Any]) -> None:
        """The same frame over every connection."""
        for socket in list(self.open):
            await socket.send_json(frame)

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
                if (event.over is None or late) and self.open:
                    await self._send(event, now)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self.again_s / 4):
                    await self._news.wait()

    async def _send(self, event: _Event, now: float) -> None:
        busy = [one.over for one in self._events if one.chat == event.chat and one.over in self.open and one.over]
        event.over = busy[0] if busy else random.choice(self.open)
        event.sent_at = now
        frame = {
            "envelope_id": event.id,
            "type": event.kind,
            "payload": event.payload,
            "accepts_response_payload": event.kind != "events_api",
            "retry_attempt": event.tries,
            "retry_reason": "timeout" if event.tries else "",
        }
        event.tries += 1
        with contextlib.suppress(ConnectionError, RuntimeError):
            await event.over.send_json(frame)

    async def link(self, request: web.Request) -> web.StreamResponse:
        """A connection."""
        ticket = request.query.get("ticket", "")
        if ticket not in self.tickets:
            raise web.HTTPForbidden
        self.tickets.remove(ticket)
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        if len(self.open) >= SOCKETS or self.greeting is not None:
            await socket.send_json(self.greeting or {"type": "disconnect", "reason": "too_many_websockets"})
            await socket.close()
            return socket
        self.open.append(socket)
        self._news.set()
        try:
            await socket.send_json({"type": "hello", "num_connections": len(self.open), "connection_info": {}})
            async for message in socket:
                if message.type is WSMsgType.TEXT:
                    self._confirm(message.json().get("envelope_id", ""))
        finally:
            self.open.remove(socket)
            self._news.set()
        return socket

    def _confirm(self, envelope_id: str) -> None:
        self.confirmed.append(envelope_id)
        self._events = [event for event in self._events if event.id != envelope_id]
