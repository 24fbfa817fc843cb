"""Our own types for the MCP protocol, all that the rest of Shoal knows of it; and the names and
schemas under which the tools of a server are offered."""

from __future__ import annotations

import hashlib
import re
from typing import Any, Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from worker.documents.untrusted import strip_hidden
from worker.mcp.schema_repair import repair_schema

MESSAGE_BYTES: Final = 4 * 1024 * 1024  # longest message that a server may send


PREFIX: Final = "mcp_"
DESCRIPTION_CHARS: Final = 1000
NAME_CHARS: Final = 256
# Limit for one server: a model that is offered hundreds of tools chooses badly.
TOOLS_OFFERED: Final = 64
_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
_WORDS: Final = ("description", "title")


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
    """The connection ended before the reply. `unsent`: the call certainly has not started."""

    def __init__(self, *, unsent: bool = False) -> None:
        super().__init__("the connection ended")
        self.unsent = unsent


class ServerRefused(Exception):
    """The server replied with an error; the text is the server's own."""


class ResultUnreadable(Exception):
    """A call ran, and its answer says nothing; the text is the fault of the answer, in our words."""


def tool_name(server: str, tool: str, *, marked: bool = False) -> str:
    """Return `mcp_<server>_<tool>`, which is stable across workers. A name that providers do not
    accept, or that is taken (`marked`), ends in a hash of the tool's real name."""
    plain = f"{PREFIX}{server}_{tool}"
    if _NAME.fullmatch(plain) and not marked:
        return plain
    mark = hashlib.sha256(f"{server}\0{tool}".encode("utf-8", "replace")).hexdigest()[:8]
    return f"{re.sub(r'[^A-Za-z0-9_-]', '_', plain)[: 64 - len(mark) - 1]}_{mark}"


def bound_tool(listed: ListedTool) -> ListedTool:
    """Return the tool cut to size. A tool that cannot be offered is reduced to its name and the
    reason, because a list may bring thousands of them in megabytes."""
    try:
        if len(listed.name) > NAME_CHARS:
            raise ValueError(f"its name has {len(listed.name):,} characters; at most {NAME_CHARS} are accepted")
        provider_schema(listed)
    except ValueError as exc:
        return ListedTool(listed.name[:NAME_CHARS], unfit=str(exc))
    return replace(listed, description=listed.description[: 4 * DESCRIPTION_CHARS])


def describe_tool(server: str, listed: ListedTool) -> str:
    """Return the description for the model: the server's name and its own text, cut to size."""
    text = " ".join(strip_hidden(listed.description[: 4 * DESCRIPTION_CHARS]).split())
    text = text if len(text) <= DESCRIPTION_CHARS else text[: DESCRIPTION_CHARS - 1] + "…"
    return f"[of the MCP server {server!r}] {text or 'without a description'}"


def provider_schema(listed: ListedTool) -> dict[str, Any]:
    """Return the schema of a tool in the form that providers accept. Raises ValueError with the
    fault: a single refused tool would fail every request to the model."""
    if listed.unfit:
        raise ValueError(listed.unfit)
    cleaned: dict[str, Any] = _clean_descriptions(repair_schema(listed.schema))
    # Hidden characters in descriptions are removed. In names, choices and defaults they are a
    # reason to refuse: changing those would break the tool.
    text = msgspec.json.encode(cleaned).decode()
    if strip_hidden(text) != text:
        raise ValueError("its schema has hidden characters")
    return cleaned


def _clean_descriptions(value: Any) -> Any:
    if isinstance(value, list):
        return [_clean_descriptions(one) for one in value]
    if not isinstance(value, dict):
        return value
    return {
        name: strip_hidden(inner) if name in _WORDS and isinstance(inner, str) else _clean_descriptions(inner)
        for name, inner in value.items()
    }
