"""The streams of an MCP server over HTTP, within limits."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import Any, Final

import httpx2
from mcp.client.streamable_http import streamable_http_client

from shared.network.outgoing import current
from shared.settings import McpServerSettings
from worker.mcp.wire import MESSAGE_BYTES

SSE_READ_S: Final = 300.0  # time that a stream of events may be silent
GOODBYE_S: Final = 2.0


@asynccontextmanager
async def http_streams(server: McpServerSettings) -> AsyncIterator[tuple[Any, Any]]:
    """Yield the stream to read from and the one to write to. The address comes from the operator,
    so it may be private; a redirect to another host is refused."""
    async with (
        _build_client(server) as client,
        streamable_http_client(server.url, http_client=client, max_sse_event_size=MESSAGE_BYTES) as streams,
    ):
        yield streams


def _build_client(server: McpServerSettings) -> httpx2.AsyncClient:
    # trust_env=False: the proxies and the .netrc of the machine are not for this server, unless
    # `[network]` says so. The library follows redirects on the server's own host only.
    rules = current()
    return httpx2.AsyncClient(
        headers={"Accept-Encoding": "identity", **{name: value.reveal() for name, value in server.headers.items()}},
        timeout=httpx2.Timeout(server.connect_s, read=max(server.timeout_s, SSE_READ_S)),
        trust_env=False,
        transport=_CappedTransport(
            verify=rules.tls_context() or True, trust_env=False, proxy=rules.proxy_for(server.url)
        ),
    )


class _CappedTransport(httpx2.AsyncHTTPTransport):
    """A transport that refuses responses that are too big or compressed (a few compressed bytes can
    expand to gigabytes). A stream of events has a limit per event instead."""

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        if request.method == "DELETE":  # ends the session; a shutdown must not wait long for it
            request.extensions["timeout"] = dict.fromkeys(("connect", "read", "write", "pool"), GOODBYE_S)
        response = await super().handle_async_request(request)
        if response.headers.get("content-encoding", "identity").lower() != "identity":
            await response.aclose()
            raise httpx2.DecodingError("the server sends packed answers, which were not asked for")
        if response.status_code == HTTPStatus.NOT_FOUND and "mcp-session-id" in request.headers:
            # The server has forgotten the session. Each server words that differently, but for a
            # response without a body the library always uses the same text, which `connection`
            # knows.
            response.headers.pop("content-type", None)
        if not response.headers.get("content-type", "").lower().startswith("text/event-stream"):
            assert isinstance(response.stream, httpx2.AsyncByteStream)
            response.stream = _CappedStream(response.stream)
        return response


class _CappedStream(httpx2.AsyncByteStream):
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
