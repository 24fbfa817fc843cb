"""What a server says, in our own words: what the rest of Shoal knows of the protocol."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, Final, Protocol

from msgspec import Struct

from shared.settings import McpServerSettings

MESSAGE_BYTES: Final = 4 * 1024 * 1024
"""The longest message that a server may send."""


class Listed(Struct, frozen=True):
    """One tool as its server lists it. Everything here was written by a stranger, but for `unfit`:
    why it cannot be offered, and then nothing else of it is kept."""

    name: str
    description: str = ""
    schema: dict[str, Any] = {}
    read_only: bool = False
    idempotent: bool = False
    unfit: str = ""


class Part(Struct, frozen=True):
    """One part of a result: `text`, and for everything that is no plain text what `kind` it is, its
    name, type and size; `text` is then that of a text resource, else None."""

    text: str | None
    kind: str = "text"
    name: str = ""
    media_type: str = ""
    size_bytes: int = 0


class CallResult(Struct, frozen=True):
    """What came of a call; `failed` when the server says so."""

    parts: tuple[Part, ...]
    failed: bool = False


class Gone(Exception):
    """The connection ended before there was an answer. `unsent`: the server has not begun with it
    for certain."""

    def __init__(self, *, unsent: bool = False) -> None:
        super().__init__("the connection ended")
        self.unsent = unsent


class Refused(Exception):
    """The server answered with an error; the text is its own."""


class Connection(Protocol):
    """An open session with one server."""

    @property
    def ended(self) -> bool: ...

    async def tools(self) -> tuple[Listed, ...]:
        """Every tool. Raises Gone and Refused."""
        ...

    async def call(self, tool: str, arguments: dict[str, Any]) -> CallResult:
        """Cancelled, it tells the server so. Raises Gone and Refused."""
        ...


News = Callable[[], None]
Says = Callable[[str], None]
Connect = Callable[[McpServerSettings, News, Says], AbstractAsyncContextManager[Connection]]
"""Opens a session: with these settings, what to call when the session ended or its list of tools
changed, and what takes each line that the server writes to its stderr."""
