"""HTTP calls of a platform's API: one try each; a failure says whether it may have arrived."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Awaitable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final, TypeVar

import aiohttp

from gateway.platform.protocol import MaybeSent, NotAccepted
from shared.network.http_client import open_session
from shared.network.outgoing import Outgoing

PART_BYTES: Final = 64 * 1024

NOT_CONNECTED: Final = (
    aiohttp.ClientConnectorError,
    aiohttp.ClientHttpProxyError,
    aiohttp.ConnectionTimeoutError,
)
"""Errors after which nothing was sent: no connection, or a proxy that made none."""

T = TypeVar("T")


class PlatformHttp:
    """The connections to one platform, at the address `base`. `timeout_s` limits a whole call,
    `connect_s` its connection, `answer_bytes` a response; `connections` how many there are, 0 = any
    number. `outgoing` are the channel's rules, None those of the process."""

    def __init__(
        self,
        base: str,
        *,
        timeout_s: float,
        connect_s: float | None = None,
        answer_bytes: float = math.inf,
        headers: Mapping[str, str] | None = None,
        connections: int = 100,
        outgoing: Outgoing | None = None,
    ) -> None:
        self.base = base.rstrip("/")
        self._timeout = aiohttp.ClientTimeout(total=timeout_s, sock_connect=connect_s)
        self._reading = aiohttp.ClientTimeout(total=None, sock_connect=connect_s or timeout_s, sock_read=timeout_s)
        self._answer_bytes = answer_bytes
        self._headers = headers
        self._connections = connections
        self._outgoing = outgoing
        self._session: aiohttp.ClientSession | None = None

    @property
    def session(self) -> aiohttp.ClientSession:
        """The session; created by the first call because it belongs to the running loop."""
        if self._session is None:
            self._session = open_session(
                self._outgoing,
                limit=self._connections,
                timeout=self._timeout,
                headers=self._headers,
            )
        return self._session

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def request(
        self, method: str, path: str, *, timeout_s: float | None = None, **more: Any
    ) -> tuple[aiohttp.ClientResponse, bytes]:
        """Return a response, whatever its status, with its body. Raises NotAccepted, MaybeSent."""
        if timeout_s is not None:
            more["timeout"] = aiohttp.ClientTimeout(total=timeout_s)
        try:
            async with self.session.request(method, self.base + path, allow_redirects=False, **more) as answer:
                return answer, await self.read(answer)
        except NOT_CONNECTED as exc:
            raise NotAccepted("no connection") from exc
        except (aiohttp.ClientError, TimeoutError) as exc:
            raise MaybeSent("no answer") from exc

    async def read(self, answer: aiohttp.ClientResponse) -> bytes:
        """Return the body of a response. Raises MaybeSent for one that is too long."""
        body = bytearray()
        async for part in answer.content.iter_chunked(PART_BYTES):
            body += part
            if len(body) > self._answer_bytes:
                raise MaybeSent("an answer that is far too long")
        return bytes(body)

    @asynccontextmanager
    async def download(self, url: str, **more: Any) -> AsyncIterator[aiohttp.ClientResponse]:
        """Yield a response of any status, to be read. Raises NotAccepted when it ends early."""
        try:
            async with self.session.get(url, timeout=self._reading, allow_redirects=False, **more) as answer:
                yield answer
        except (aiohttp.ClientError, TimeoutError) as exc:
            raise NotAccepted(type(exc).__name__) from exc


async def repeatable(call: Awaitable[T]) -> T:
    """Run a call without visible effects: raise NotAccepted when its outcome is unclear."""
    try:
        return await call
    except MaybeSent as exc:
        raise NotAccepted(exc.reason) from exc
