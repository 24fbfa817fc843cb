"""A session with one MCP server, and the library's objects as our own types."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from typing import Any, Final, cast

import mcp_types
from mcp.client.session import ClientSession
from mcp.shared.exceptions import MCPError
from pydantic import ValidationError

from shared.settings import McpServerSettings
from shared.version import VERSION
from worker.mcp.http_streams import http_streams
from worker.mcp.process_streams import process_streams
from worker.mcp.raw_dispatcher import RAW, RawDispatcher, answer_unparsed
from worker.mcp.raw_results import parse_page, parse_result
from worker.mcp.wire import CallResult, ListedTool, ResultUnreadable, ServerGone, ServerRefused

TOOLS_LISTED: Final = 500
PAGES: Final = 50

# The error text of the library for a session that an HTTP server has forgotten.
_TERMINATED: Final = "Session terminated"
# The beginning of its error text for an answer of a type that is neither JSON nor events.
_NO_JSON: Final = "Unexpected content type"
_LOGGERS: Final = ("mcp", "client", "httpx2", "httpcore2")


class McpSession:
    """An open session. Methods raise ServerGone and ServerRefused, and pass cancellation on."""

    def __init__(self, session: ClientSession, reading: _WatchedStream) -> None:
        self._session = session
        self._reading = reading

    @property
    def ended(self) -> bool:
        return self._reading.ended

    async def tools(self) -> tuple[ListedTool, ...]:
        found: list[ListedTool] = []
        cursor: str | None = None
        for _ in range(PAGES):
            listed, cursor = await self._list_page(cursor, TOOLS_LISTED - len(found))
            found += listed
            if not cursor or len(found) >= TOOLS_LISTED:
                break
        return tuple(found)

    async def _list_page(self, cursor: str | None, limit: int) -> tuple[list[ListedTool], str | None]:
        """Return a page of tools and the next cursor. Tools are cut to size at once."""
        params = mcp_types.PaginatedRequestParams(cursor=cursor) if cursor else None
        with self.map_errors():
            try:
                page = await self._request(mcp_types.ListToolsRequest(params=params))
            except MCPError as exc:
                if exc.code != mcp_types.METHOD_NOT_FOUND:
                    raise
                return [], None  # the server offers no tools at all
        return parse_page(page, TOOLS_LISTED - limit + 1, limit)

    async def call(self, tool: str, arguments: dict[str, Any]) -> CallResult:
        """Call a tool. Raises ResultUnreadable for an answer that came but says nothing."""
        request = mcp_types.CallToolRequest(params=mcp_types.CallToolRequestParams(name=tool, arguments=arguments))
        with self.map_errors():
            # Not `call_tool`: it would validate the result against the server's own schema, and
            # that schema's regular expressions could block this process.
            try:
                raw = await self._request(request)
            except MCPError as exc:
                if exc.code != mcp_types.PARSE_ERROR and not exc.message.startswith(_NO_JSON):
                    raise
                raise ResultUnreadable("it is not one that the protocol knows") from None
        return parse_result(raw)

    async def _request(self, request: mcp_types.ListToolsRequest | mcp_types.CallToolRequest) -> dict[str, Any]:
        result = await self._session.send_request(request, mcp_types.EmptyResult)
        return cast(dict[str, Any], (result.meta or {})[RAW])

    @contextmanager
    def map_errors(self) -> Iterator[None]:
        """Turn errors of the library into ServerGone and ServerRefused, without a reply's text."""
        try:
            yield
        except MCPError as exc:
            if exc.message == _TERMINATED:
                self._reading.end()
                raise ServerGone(unsent=True) from None
            if exc.code == mcp_types.CONNECTION_CLOSED:
                raise ServerGone from None
            raise ServerRefused(exc.message) from None
        except ValidationError as exc:
            why = f"its answer is not one that the protocol knows ({exc.error_count()} faults)"
            raise ServerRefused(why) from None


@asynccontextmanager
async def connect(
    server: McpServerSettings, on_change: Callable[[], None], on_line: Callable[[str], None]
) -> AsyncIterator[McpSession]:
    """Start or reach the server and negotiate the protocol (a Connect), entered and left in one
    task. Raises OSError, ServerGone, ServerRefused, and ExceptionGroups from inside the library."""
    for name in _LOGGERS:  # they log whole messages, with all the private text in them
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)

    async def on_message(message: object) -> None:
        if isinstance(message, mcp_types.ToolListChangedNotification):
            on_change()

    async with AsyncExitStack() as stack:
        if server.command:
            read, write = await stack.enter_async_context(process_streams(server, on_line))
        else:
            read, write = await stack.enter_async_context(http_streams(server))
        reading = _WatchedStream(read, on_change)
        about = mcp_types.Implementation(name="shoal", version=VERSION)
        dispatcher = RawDispatcher(cast(Any, reading), write)
        client = ClientSession(message_handler=on_message, client_info=about, dispatcher=dispatcher)
        library = await stack.enter_async_context(client)
        session = McpSession(library, reading)
        with session.map_errors():
            await _negotiate(library)
        yield session


async def _negotiate(session: ClientSession) -> None:
    """Initialize the session. The handshake comes first: it enables notifications of changed
    lists. Servers of newer protocol versions refuse it and are discovered instead."""
    try:
        await session.initialize()
    except MCPError as exc:
        if exc.code not in (mcp_types.UNSUPPORTED_PROTOCOL_VERSION, mcp_types.METHOD_NOT_FOUND):
            raise
        await session.discover()


class _WatchedStream:
    """The stream read from a server, which knows whether it has ended."""

    def __init__(self, stream: Any, on_change: Callable[[], None]) -> None:
        self._stream = stream
        self._on_change = on_change
        self.ended = False

    def end(self) -> None:
        self.ended = True
        self._on_change()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    async def __aiter__(self) -> AsyncIterator[Any]:
        async for item in self._stream:
            yield answer_unparsed(item)

    async def __aenter__(self) -> _WatchedStream:
        await self._stream.__aenter__()
        return self

    async def __aexit__(self, *exc: Any) -> bool | None:
        self.end()
        return await self._stream.__aexit__(*exc)  # type: ignore[no-any-return]
