"""The official MCP client, in front of a gateway."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any

import httpx2
from mcp.client.client import Client
from mcp.client.streamable_http import streamable_http_client
from mcp_types import CallToolResult, TextContent

from tests.gateway.harness import TOKENS

MODERN = "2026-07-28"
INITIALIZE: Any = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}},
}
ACCEPT = {"Accept": "application/json, text/event-stream"}


@contextlib.asynccontextmanager
async def caller(address: str, token: str = TOKENS["owner"], *, mode: str = "auto") -> AsyncIterator[Client]:
    """A client that is connected; no proxy of the machine stands between."""
    headers = {"Authorization": f"Bearer {token}"}
    async with httpx2.AsyncClient(headers=headers, trust_env=False, timeout=60) as http:
        transport = streamable_http_client(f"http://{address}/mcp", http_client=http)
        async with Client(transport, mode=mode) as client:
            yield client


def text_of(result: CallToolResult) -> str:
    """Return the one text of a result."""
    [content] = result.content
    assert isinstance(content, TextContent)
    return content.text
