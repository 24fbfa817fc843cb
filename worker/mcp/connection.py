"""A session with one MCP server."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Final

import msgspec
from mcp.client.session import ClientSession
from mcp.shared.exceptions import MCPError
from mcp_types import (
    CONNECTION_CLOSED,
    METHOD_NOT_FOUND,
    UNSUPPORTED_PROTOCOL_VERSION,
    CallToolRequest,
    CallToolRequestParams,
    CallToolResult,
    Implementation,
    PaginatedRequestParams,
    ToolListChangedNotification,
)
from pydantic import ValidationError

from shared.settings import McpServerSettings
from shared.version import VERSION
from worker.mcp.http import http_streams
from worker.mcp.naming import bounded
from worker.mcp.parse import malformed, read_part, read_tool
from worker.mcp.process import process_streams
from worker.mcp.wire import CallResult, Gone, Listed, Part, Refused

TOOLS_LISTED: Final = 500
PAGES: Final = 50

_TERMINATED: Final = "Session terminated"  # what the library says for a session that an HTTP server has forgotten
_LOGGERS: Final = ("mcp", "client", "httpx2", "httpcore2")


class Session:
    """A Connection."""

    def __init__(self, session: ClientSession, reading: _Watched) -> None:
        self._session = session
        self._reading = reading

    @property
    def ended(self) -> bool:
        return self._reading.ended

    async def tools(self) -> tuple[Listed, ...]:
        found: list[Listed] = []
        cursor: str | None = None
        for _ in range(PAGES):
            listed, cursor = await self._page(cursor, TOOLS_LISTED - len(found))
            found += listed
            if not cursor or len(found) >= TOOLS_LISTED:
                break
        return tuple(found)

    async def _page(self, cursor: str | None, limit: int) -> tuple[list[Listed], str | None]:
        """Bounded here: of a page of megabytes, nothing but this is left when the next one is asked
        for."""
        try:
            page = await self._session.list_tools(params=PaginatedRequestParams(cursor=cursor) if cursor else None)
        except MCPError as exc:
            if exc.code == METHOD_NOT_FOUND:
                return [], None  # a server without tools
            raise self._fault(exc) from None
        except ValidationError as exc:
            raise malformed(exc) from None
        return [bounded(read_tool(tool)) for tool in page.tools[:limit]], page.next_cursor

    async def call(self, tool: str, arguments: dict[str, Any]) -> CallResult:
        request = CallToolRequest(params=CallToolRequestParams(name=tool, arguments=arguments))
        try:
            # Not `call_tool`: that runs the patterns of the server's own output schema in this
            # process.
            result = await self._session.send_request(request, CallToolResult)
        except MCPError as exc:
            raise self._fault(exc) from None
        except ValidationError as exc:
            raise malformed(exc) from None
        parts = tuple(map(read_part, result.content))
        if not parts and result.structured_content is not None:
            parts = (Part(msgspec.json.encode(result.structured_content).decode()),)
        return CallResult(parts, result.is_error)

    def _fault(self, exc: MCPError) -> Exception:
        if exc.message == _TERMINATED:
            self._reading.end()
            return Gone(unsent=True)
        return Gone() if exc.code == CONNECTION_CLOSED else Refused(exc.message)


@asynccontextmanager
async def connect(
    server: McpServerSettings, news: Callable[[], None], says: Callable[[str], None]
) -> AsyncIterator[Session]:
    """Start or reach the server and agree with it on a protocol; a Connect. Must be entered and
    left in one task.

    Raises OSError, Gone, Refused, and ExceptionGroups of what breaks inside the library.
    """
    for name in _LOGGERS:  # they write whole messages
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)

    async def hear(message: object) -> None:
        if isinstance(message, ToolListChangedNotification):
            news()

    async with AsyncExitStack() as stack:
        if server.command:
            read, write = await stack.enter_async_context(process_streams(server, says))
        else:
            read, write = await stack.enter_async_context(http_streams(server))
        reading = _Watched(read, news)
        me = Implementation(name="shoal", version=VERSION)
        library = await stack.enter_async_context(ClientSession(reading, write, message_handler=hear, client_info=me))
        session = Session(library, reading)
        try:
            await _agree(library)
        except MCPError as exc:
            raise session._fault(exc) from None
        except ValidationError as exc:
            raise malformed(exc) from None
        yield session


async def _agree(session: ClientSession) -> None:
    """By the handshake, which also brings news of changed lists; else as newer servers want it."""
    try:
        await session.initialize()
    except MCPError as exc:
        if exc.code not in (UNSUPPORTED_PROTOCOL_VERSION, METHOD_NOT_FOUND):
            raise
        await session.discover()


class _Watched:
    """What is read from a server, and whether there can be more."""

    def __init__(self, stream: Any, news: Callable[[], None]) -> None:
        self._stream = stream
        self._news = news
        self.ended = False

    def end(self) -> None:
        """Mark it as ended, and say so."""
        self.ended = True
        self._news()

    @property
    def last_context(self) -> Any:
        return getattr(self._stream, "last_context", None)

    async def receive(self) -> Any:
        return await self._stream.receive()

    async def aclose(self) -> None:
        self.end()
        await self._stream.aclose()

    def __aiter__(self) -> _Watched:
        return self

    async def __anext__(self) -> Any:
        return await self._stream.__anext__()

    async def __aenter__(self) -> _Watched:
        await self._stream.__aenter__()
        return self

    async def __aexit__(self, *exc: Any) -> bool | None:
        self.end()
        return await self._stream.__aexit__(*exc)  # type: ignore[no-any-return]
