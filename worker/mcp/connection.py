"""A session with one MCP server, and the library's objects as our own types."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from typing import Any, Final, cast

import mcp_types
import msgspec
from mcp.client.session import ClientSession
from mcp.shared.exceptions import MCPError
from pydantic import ValidationError

from shared.settings import McpServerSettings
from shared.version import VERSION
from worker.mcp.http_streams import http_streams
from worker.mcp.process_streams import process_streams
from worker.mcp.wire import CallResult, ListedTool, ResultPart, ServerGone, ServerRefused, bound_tool

TOOLS_LISTED: Final = 500
PAGES: Final = 50

# The error text of the library for a session that an HTTP server has forgotten.
_TERMINATED: Final = "Session terminated"
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
                page = await self._session.list_tools(params=params)
            except MCPError as exc:
                if exc.code != mcp_types.METHOD_NOT_FOUND:
                    raise
                return [], None  # the server offers no tools at all
        return [bound_tool(parse_tool(tool)) for tool in page.tools[:limit]], page.next_cursor

    async def call(self, tool: str, arguments: dict[str, Any]) -> CallResult:
        request = mcp_types.CallToolRequest(params=mcp_types.CallToolRequestParams(name=tool, arguments=arguments))
        with self.map_errors():
            # Not `call_tool`: it would validate the result against the server's own schema, and
            # that schema's regular expressions could block this process.
            result = await self._session.send_request(request, mcp_types.CallToolResult)
        parts = tuple(map(parse_part, result.content))
        if not parts and result.structured_content is not None:
            parts = (ResultPart(msgspec.json.encode(result.structured_content).decode()),)
        return CallResult(parts, result.is_error)

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
        client = ClientSession(cast(Any, reading), write, message_handler=on_message, client_info=about)
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

    def __aiter__(self) -> Any:
        return aiter(self._stream)

    async def __aenter__(self) -> _WatchedStream:
        await self._stream.__aenter__()
        return self

    async def __aexit__(self, *exc: Any) -> bool | None:
        self.end()
        return await self._stream.__aexit__(*exc)  # type: ignore[no-any-return]


def parse_tool(tool: mcp_types.Tool) -> ListedTool:
    """Convert one tool of a list."""
    hints = tool.annotations
    return ListedTool(
        tool.name,
        tool.description or tool.title or "",
        tool.input_schema,
        read_only=bool(hints and hints.read_only_hint),
        idempotent=bool(hints and hints.idempotent_hint),
    )


def parse_part(content: object) -> ResultPart:
    """Convert one part of a result. Binary content is measured and dropped."""
    match content:
        case mcp_types.TextContent(text=text):
            return ResultPart(text)
        case mcp_types.ImageContent(data=data, mime_type=media) | mcp_types.AudioContent(data=data, mime_type=media):
            return ResultPart(None, kind=content.type, media_type=media, size_bytes=len(data) * 3 // 4)
        case mcp_types.EmbeddedResource(resource=mcp_types.BlobResourceContents() as blob):
            size = len(blob.blob) * 3 // 4
            return ResultPart(None, "resource", name=str(blob.uri), media_type=blob.mime_type or "", size_bytes=size)
        case mcp_types.EmbeddedResource(resource=mcp_types.TextResourceContents() as page):
            size = len(page.text.encode("utf-8", "replace"))
            return ResultPart(page.text, "resource", str(page.uri), page.mime_type or "text/plain", size)
        case mcp_types.ResourceLink():
            return ResultPart(None, "link", str(content.uri), content.mime_type or "", content.size or 0)
        case _:
            return ResultPart(None, kind="part of an unknown kind")
