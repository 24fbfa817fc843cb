"""The HTTP connections of a process to the endpoints of models."""

from __future__ import annotations

import asyncio
from typing import Final

import aiohttp

IDLE_S: Final = 30.0  # seconds for which an unused connection is kept


class Connections:
    """HTTP connections, opened on demand and reused."""

    def __init__(self) -> None:
        self._session: aiohttp.ClientSession | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def session(self) -> aiohttp.ClientSession:
        loop = asyncio.get_running_loop()
        if self._session is None or self._session.closed or self._loop is not loop:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=IDLE_S),
                cookie_jar=aiohttp.DummyCookieJar(),
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=None),  # CallTimeouts limits
                trust_env=False,
            )
            self._loop = loop
        return self._session

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None


CONNECTIONS: Final = Connections()  # one pool a process, whichever models use it


async def read_body(response: aiohttp.ClientResponse, limit_bytes: int) -> bytes:
    """Return the whole body. Raises ValueError if it is over the limit."""
    pieces: list[bytes] = []
    size_bytes = 0
    while piece := await response.content.readany():
        size_bytes += len(piece)
        if size_bytes > limit_bytes:
            raise ValueError("the body is too big")
        pieces.append(piece)
    return b"".join(pieces)
