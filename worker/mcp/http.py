"""An MCP server that is reached over HTTP: its streams, within limits."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import Any, Final

import httpx2
from mcp.client.streamable_http import streamable_http_client

from shared.settings import McpServerSettings
from worker.mcp.wire import MESSAGE_BYTES

SSE_READ_S: Final = 300.0
"""How long a stream of events may be silent."""
GOODBYE_S: Final = 2.0


@asynccontextmanager
async def http_streams(server: McpServerSettings) -> AsyncIterator[tuple[Any, Any]]:
    """What to read from the server and where to write. The address is the operator's own, so
    nothing forbids a private one; a redirect to another host is refused."""
    async with (
        _client(server) as client,
        streamable_http_client(server.url, http_client=client, max_sse_event_size=MESSAGE_BYTES) as streams,
    ):
        yield streams


def _client(server: McpServerSettings) -> httpx2.AsyncClient:
    # Without the environment: no proxy and no password file of the machine. Redirects stay on the server's own host,
    # the library sees to that.
    return httpx2.AsyncClient(
        headers={"Accept-Encoding": "identity", **{name: value.reveal() for name, value in server.headers.items()}},
        timeout=httpx2.Timeout(server.connect_s, read=max(server.timeout_s, SSE_READ_S)),
        trust_env=False,
        transport=_Capped(trust_env=False),
    )


class _Capped(httpx2.AsyncHTTPTransport):
    """Refuses answers that are too big or packed. A stream of events has a limit for each event
    instead."""

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        if request.method == "DELETE":  # the good-bye of a session: nobody waits long for its answer
            request.extensions["timeout"] = dict.fromkeys(("connect", "read", "write", "pool"), GOODBYE_S)
        response = await super().handle_async_request(request)
        if response.headers.get("content-encoding", "identity").lower() != "identity":
            await response.aclose()
            raise httpx2.DecodingError("the server sends packed answers, which were not asked for")
        if response.status_code == HTTPStatus.NOT_FOUND and "mcp-session-id" in request.headers:
            # A session that the server has forgotten. Servers say so in words of their own, the library without a body
            # always in the same: its caller tells the two apart.
            response.headers.pop("content-type", None)
        if not response.headers.get("content-type", "").lower().startswith("text/event-stream"):
            assert isinstance(response.stream, httpx2.AsyncByteStream)
            response.stream = _Limited(response.stream)
        return response


class _Limited(httpx2.AsyncByteStream):
    def __init__(self, stream: httpx2.AsyncByteStream) -> None:
        self._stream = stream

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size = 0
        async for piece in self._stream:
            size += len(piece)
            if size > MESSAGE_BYTES:
                raise httpx2.StreamError(f"the answer has more than {MESSAGE_BYTES:,} bytes")
            yield piece

    async def aclose(self) -> None:
        await self._stream.aclose()
