"""The agent as an MCP server: one tool over streamable HTTP, without sessions of the protocol."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final

import mcp_types
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel.server import Server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.shared.exceptions import MCPError
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from gateway.channels.web.http.leaving import serve_until_left
from gateway.channels.web.mcp.ask import ASK, DESCRIPTION, INPUT_SCHEMA, OUTPUT_SCHEMA, TITLE
from gateway.channels.web.mcp.call import McpCall
from shared.version import VERSION

NAME: Final = "shoal"
CALL: Final = "shoal.mcp_call"  # where the scope of a request has its McpCall

Context = ServerRequestContext[Any, Request]


class McpEndpoint:
    """Answers MCP's messages with the library's own transport. The router has looked at the token,
    the origin, the rate and the size by then, and has read the body."""

    def __init__(self, body_bytes: int) -> None:
        server = Server(NAME, version=VERSION, on_list_tools=_list_tools, on_call_tool=_call_tool)
        self._manager = StreamableHTTPSessionManager(server, stateless=True, max_request_body_size=body_bytes)
        self._running = asyncio.Event()

    async def run(self) -> None:
        """Run until cancelled; requests that come before wait."""
        async with self._manager.run():
            self._running.set()
            await asyncio.Event().wait()

    def respond(self, body: bytes, call: McpCall, ended: Callable[[], None]) -> Response:
        """Return the response to a request with this body; it closes `call`, then calls `ended`."""
        return _McpResponse(self._handle, body, call, ended)

    async def _handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._running.wait()
        await self._manager.handle_request(scope, receive, send)


class _McpResponse(Response):
    """The response that the library writes, for a body that was read before. A client that leaves
    ends it, whatever the library does just then."""

    def __init__(
        self,
        handle: Callable[[Scope, Receive, Send], Coroutine[Any, Any, None]],
        body: bytes,
        call: McpCall,
        ended: Callable[[], None],
    ) -> None:
        super().__init__()
        self._handle = handle
        self._sent_body = body
        self._call = call
        self._ended = ended

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        pending: list[Message] = [{"type": "http.request", "body": self._sent_body, "more_body": False}]

        async def replay() -> Message:
            if pending:
                return pending.pop()
            # A client that leaves ends the serving of its request.
            await asyncio.Event().wait()
            raise AssertionError

        serving = self._handle({**scope, CALL: self._call}, replay, send)
        try:
            await serve_until_left(serving, receive, self._call.close)
        finally:
            self._ended()


async def _list_tools(context: Context, params: mcp_types.PaginatedRequestParams | None) -> mcp_types.ListToolsResult:
    tool = mcp_types.Tool(
        name=ASK, title=TITLE, description=DESCRIPTION, input_schema=INPUT_SCHEMA, output_schema=OUTPUT_SCHEMA
    )
    return mcp_types.ListToolsResult(tools=[tool])


async def _call_tool(context: Context, params: mcp_types.CallToolRequestParams) -> mcp_types.CallToolResult:
    if params.name != ASK:
        raise MCPError(mcp_types.INVALID_PARAMS, f"there is no tool {params.name[:40]!r}; there is {ASK!r}")
    assert context.request is not None
    call: McpCall = context.request.scope[CALL]

    async def report(progress: float, text: str) -> None:
        await context.session.report_progress(progress, message=text)

    result = await call.ask(params.arguments, report)
    return mcp_types.CallToolResult(
        content=[mcp_types.TextContent(type="text", text=result.text)],
        structured_content=result.structured,
        is_error=result.is_error,
    )
