"""Our own types for the MCP protocol: all that the rest of Shoal knows of it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, Final, Protocol

from msgspec import Struct

from shared.settings import McpServerSettings

MESSAGE_BYTES: Final = 4 * 1024 * 1024
"""Longest message that a server may send."""


class ListedTool(Struct, frozen=True):
    """One tool as its server lists it: everything here is text of a stranger, except `unfit`. That
    is the reason why the tool cannot be offered; then only its name is kept."""

    name: str
    description: str = ""
    schema: dict[str, Any] = {}
    read_only: bool = False
    idempotent: bool = False
    unfit: str = ""


class ResultPart(Struct, frozen=True):
    """One part of a result. Plain text has `text` alone; any other `kind` has a name, a media type
    and a size, and `text` only if it is a text resource."""

    text: str | None
    kind: str = "text"
    name: str = ""
    media_type: str = ""
    size_bytes: int = 0


class CallResult(Struct, frozen=True):
    """The result of a call; `failed` if the server says so."""

    parts: tuple[ResultPart, ...]
    failed: bool = False


class ServerGone(Exception):
    """The connection ended before the reply came. `unsent` means that the server certainly has not
    started the call, so that it may be sent again."""

    def __init__(self, *, unsent: bool = False) -> None:
        super().__init__("the connection ended")
        self.unsent = unsent


class ServerRefused(Exception):
    """The server replied with an error; the text is the server's own."""


class McpConnection(Protocol):
    """An open session with one server."""

    @property
    def ended(self) -> bool: ...

    async def tools(self) -> tuple[ListedTool, ...]:
        """Return every tool. Raises ServerGone and ServerRefused."""
        ...

    async def call(self, tool: str, arguments: dict[str, Any]) -> CallResult:
        """Call a tool; on cancellation, cancel it in the server. Raises ServerGone and
        ServerRefused."""
        ...


OnChange = Callable[[], None]
OnLine = Callable[[str], None]
Connect = Callable[[McpServerSettings, OnChange, OnLine], AbstractAsyncContextManager[McpConnection]]
"""Open a session with these settings. OnChange is called when the session ends or its list of
tools changes, OnLine with each line that the server writes to its stderr."""
