"""Discord's gateway (docs.discord.com/developers/events/gateway): WebSockets with sessions that can be resumed.

It greets, takes IDENTIFY and RESUME, answers heartbeats, and packs all of a connection as one zlib stream. A session
outlives its connection unless that is closed with 1000 or 1001: what happens meanwhile is replayed. What a session may
not see (message content without the intent) is left out. It refuses what the real one refuses, with its close codes.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import time
import zlib
from typing import Any, Final

from aiohttp import WSMsgType, web

GUILDS, GUILD_MESSAGES, DIRECT_MESSAGES, MESSAGE_CONTENT = 1 << 0, 1 << 9, 1 << 12, 1 << 15
HIDDEN: Final = {"content": "", "attachments": [], "embeds": [], "components": []}


class Session:
    """One of the gateway's. `events` are all that it was told, each with its number."""

    def __init__(self, id: str, intents: int, shard: tuple[int, int]) -> None:
        self.id = id
        self.intents = intents
        self.shard = shard
        self.events: list[dict[str, Any]] = []
        self.socket: Socket | None = None
        self.seq = 0


class Socket:
    """A connection."""

    def __init__(self, ws: web.WebSocketResponse, transport: asyncio.Transport | None) -> None:
        self.ws = ws
        self.transport = transport
        self._zlib = zlib.compressobj()

    async def send(self, op: int, data: Any, seq: int | None = None, name: str | None = None) -> None:
        payload = json.dumps({"op": op, "d": data, "s": seq, "t": name}).encode()
        packed = self._zlib.compress(payload) + self._zlib.flush(zlib.Z_SYNC_FLUSH)
        if not self.ws.closed:
            await self.ws.send_bytes(packed)


class FakeGateway:
    """The gateway of one bot. `address` is set by the server it is part of."""

    def __init__(self, token: str, me: dict[str, Any]) -> None:
        self.token = token
        self.me = me
        self.address = ""
        self.resume_address = ""
        self.shards = 1
        self.left = 1000
        self.at_once = 1
        self.allowed_intents = ~0
        self.identifies: list[tuple[float, int]] = []
        self.resumes = 0
        self.forgot = False
        self.sessions: dict[str, Session] = {}
        self._numbers = itertools.count(1)
        self._early: list[tuple[str, dict[str, Any]]] = []
        self._order = asyncio.Lock()

    @property
    def open(self) -> int:
        """How many connections hear events at this moment."""
        return sum(one.socket is not None for one in self.sessions.values())

    async def tell(self, name: str, data: dict[str, Any]) -> None:
        """Something happened. Before there is any session, it waits for the first one."""
        async with self._order:
            if not self.sessions and not self.forgot:
                self._early.append((name, data))
            for session in self.sessions.values():
                await self._tell(session, name, data)

    async def cut(self) -> None:
        """Cut every connection; the sessions stay."""
        for session in self.sessions.values():
            if session.socket is not None:
                socket, session.socket = session.socket, None
                if socket.transport is not None:
                    socket.transport.abort()

    async def forget(self) -> None:
        """Cut every connection and forget the sessions, as after a long break."""
        await self.cut()
        self.sessions.clear()
        self.forgot = True

    async def ask_to_reconnect(self) -> None:
        """As it does every few hours."""
        for session in self.sessions.values():
            if session.socket is not None:
                await session.socket.send(7, None)

    async def serve(self, request: web.Request) -> web.StreamResponse:
        if request.query.get("v") != "10" or request.query.get("compress") != "zlib-stream":
            return web.Response(status=400)
        ws = web.WebSocketResponse(autoping=True)
        await ws.prepare(request)
        socket, session = Socket(ws, request.transport), None
        await socket.send(10, {"heartbeat_interval": 41250, "_trace": []})
        async for message in ws:
            if message.type is not WSMsgType.TEXT:
                break
            frame = json.loads(message.data)
            match frame["op"]:
                case 1:
                    await socket.send(11, None)
                case 2 if session is None:
                    session = await self._identify(socket, frame["d"])
                case 6 if session is None:
                    session = await self._resume(socket, frame["d"])
                case 2 | 6:
                    await ws.close(code=4005)
                case _:
                    await ws.close(code=4001)
        if session is not None and session.socket is socket:
            session.socket = None
            if ws.close_code in (1000, 1001):
                self.sessions.pop(session.id, None)
        return ws

    async def _identify(self, socket: Socket, data: dict[str, Any]) -> Session | None:
        shard = (int(data["shard"][0]), int(data["shard"][1])) if "shard" in data else (0, 1)
        self.identifies.append((time.monotonic(), shard[0]))
        if data["token"] != self.token:
            await socket.ws.close(code=4004, message=b"Authentication failed.")
            return None
        if not 0 <= shard[0] < shard[1]:
            await socket.ws.close(code=4010, message=b"Invalid shard.")
            return None
        if data["intents"] & ~self.allowed_intents:
            await socket.ws.close(code=4014, message=b"Disallowed intent(s).")
            return None
        self.left -= 1
        async with self._order:
            for old in [one for one in self.sessions.values() if one.shard[1] != shard[1] and one.socket is None]:
                del self.sessions[old.id]
            session = Session(f"session-{next(self._numbers)}", data["intents"], shard)
            session.socket = socket
            first = not self.sessions
            self.sessions[session.id] = session
            guilds: list[dict[str, Any]] = []
            ready = {
                "v": 10,
                "user": self.me,
                "guilds": guilds,
                "session_id": session.id,
                "resume_gateway_url": self.resume_address or self.address,
                "shard": list(shard),
                "application": {"id": self.me["id"], "flags": 0},
            }
            await self._put(session, "READY", ready)
            if first:
                for name, data in self._early:
                    await self._tell(session, name, data)
                self._early.clear()
        return session

    async def _resume(self, socket: Socket, data: dict[str, Any]) -> Session | None:
        if data["token"] != self.token:
            await socket.ws.close(code=4004, message=b"Authentication failed.")
            return None
        self.resumes += 1
        async with self._order:
            session = self.sessions.get(data["session_id"])
            if session is None:
                await socket.send(9, False)
                return None
            if data["seq"] is None or data["seq"] > session.seq:
                await socket.ws.close(code=4007, message=b"Invalid seq.")
                return None
            if session.socket is not None:
                await session.socket.ws.close(code=4000)
            session.socket = socket
            for event in session.events:
                if event["s"] > data["seq"]:
                    await socket.send(0, event["d"], event["s"], event["t"])
            await self._put(session, "RESUMED", {"_trace": []})
        return session

    async def _tell(self, session: Session, name: str, data: dict[str, Any]) -> None:
        guild = int(data.get("guild_id") or 0)
        needs = GUILD_MESSAGES if guild else DIRECT_MESSAGES
        if (guild >> 22) % session.shard[1] != session.shard[0]:
            return
        if name.startswith("MESSAGE_") and not session.intents & needs:
            return
        named = any(one["id"] == self.me["id"] for one in data.get("mentions", ()))
        own = data.get("author", {}).get("id") == self.me["id"]
        if "content" in data and guild and not (named or own) and not session.intents & MESSAGE_CONTENT:
            data = data | HIDDEN
        await self._put(session, name, data)

    async def _put(self, session: Session, name: str, data: dict[str, Any]) -> None:
        session.seq += 1
        session.events.append({"s": session.seq, "t": name, "d": data})
        if session.socket is not None:
            try:
                await session.socket.send(0, data, session.seq, name)
            except (ConnectionError, RuntimeError):
                session.socket = None
