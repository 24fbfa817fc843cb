"""Lists of tools and results of calls as a server sent them, read part by part: what is malformed
hides itself alone. The protocol's library refuses a whole page or result for one fault in it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from worker.mcp.schema_repair import NO_SCHEMA
from worker.mcp.wire import CallResult, ListedTool, ResultPart, ResultUnreadable, ServerRefused, bound_tool

UNREADABLE: Final = "part that cannot be read"
_ANNOTATIONS: Final[Mapping[str, type]] = {
    "title": str,
    "readOnlyHint": bool,
    "destructiveHint": bool,
    "idempotentHint": bool,
    "openWorldHint": bool,
}


def parse_page(page: Mapping[str, Any], first: int, limit: int) -> tuple[list[ListedTool], str | None]:
    """Return at most `limit` tools of a page, each cut to size, and the next cursor. `first` is the
    position of its first entry. Raises ServerRefused if the page has no list."""
    entries = page.get("tools")
    if entries is None:  # some languages write an empty list as null
        entries = []
    if not isinstance(entries, list):
        raise ServerRefused("its list of tools is not a list")
    listed = [bound_tool(parse_tool(one, first + n)) for n, one in enumerate(entries[:limit])]
    cursor = page.get("nextCursor")
    if cursor is None or isinstance(cursor, str):
        return listed, cursor
    return [*listed, ListedTool("(more tools)", unfit="the cursor of their page is not a text")], None


def parse_tool(entry: object, position: int) -> ListedTool:
    """Convert one tool of a list. A malformed one keeps its name (or position) and the reason."""
    name = entry.get("name") if isinstance(entry, dict) else None
    known = name if isinstance(name, str) and name else f"(entry {position})"
    try:
        if not isinstance(entry, dict):
            raise ValueError("it is not an object")
        if known != name:
            raise ValueError("it has no name")
        if not isinstance(entry.get("inputSchema"), dict):
            raise ValueError(NO_SCHEMA)
        words = [entry.get(key) for key in ("description", "title")]
        if not all(one is None or isinstance(one, str) for one in words):
            raise ValueError("its description or title is not a text")
        hints = entry.get("annotations") or {}
        if not isinstance(hints, dict):
            raise ValueError("its annotations are not an object")
        for key, kind in _ANNOTATIONS.items():
            if not isinstance(hints.get(key), kind | None):
                raise ValueError(f"its annotation {key!r} is not a {kind.__name__}")
    except ValueError as exc:
        return ListedTool(known, unfit=str(exc))
    return ListedTool(
        known,
        words[0] or words[1] or "",
        entry["inputSchema"],
        read_only=hints.get("readOnlyHint") is True,
        idempotent=hints.get("idempotentHint") is True,
    )


def parse_result(raw: Mapping[str, Any]) -> CallResult:
    """Convert the result of a call. Parts that cannot be read are named beside the others. Raises
    ResultUnreadable if nothing can be read, and ServerRefused for a call that did not run."""
    if raw.get("resultType") == "input_required":
        raise ServerRefused("it asks for more input, which is not supported")
    content = raw.get("content")
    entries = content if isinstance(content, list) else [] if content is None else [content]
    parts = [parse_part(entry) for entry in entries]
    failed = raw.get("isError")
    if isinstance(failed, str):
        failed = {"true": True, "false": False}.get(failed.lower(), failed)
    structured = raw.get("structuredContent")
    readable = any(part.kind != UNREADABLE for part in parts)
    if structured is not None and not readable:
        parts = [ResultPart(_as_json(structured)), *parts]
    elif not readable and failed is not True and (entries or content is None):
        raise ResultUnreadable("none of its parts can be read" if entries else "it has no content")
    if not isinstance(failed, bool | None):
        unclear = "neither true nor false: whether the call failed is unknown"
        parts.append(ResultPart(None, "isError", name=unclear))
    return CallResult(tuple(parts), failed is True)


def parse_part(entry: object) -> ResultPart:
    """Convert one part of a result. Binary content is measured and dropped."""
    if isinstance(entry, str):
        return ResultPart(entry)
    return _parse_object(entry) if isinstance(entry, dict) else ResultPart(None, UNREADABLE)


def _parse_object(entry: dict[str, Any]) -> ResultPart:
    match entry:
        case {"type": "text", "text": text} if text is not None:
            return ResultPart(text if isinstance(text, str) else _as_json(text))
        case {"type": "image" | "audio" as kind, "data": str(data)}:
            size = len(data) * 3 // 4
            return ResultPart(None, kind, media_type=_text(entry, "mimeType"), size_bytes=size)
        case {"type": "resource", "resource": {"text": str(text)} as page}:
            media = _text(page, "mimeType") or "text/plain"
            size = len(text.encode("utf-8", "replace"))
            return ResultPart(text, "resource", _text(page, "uri"), media, size)
        case {"type": "resource", "resource": {"blob": str(blob)} as page}:
            size = len(blob) * 3 // 4
            return ResultPart(None, "resource", _text(page, "uri"), _text(page, "mimeType"), size)
        case {"type": "resource_link", "uri": str(uri)}:
            listed = entry.get("size")
            size = listed if isinstance(listed, int) else 0
            return ResultPart(None, "link", uri, _text(entry, "mimeType"), size)
        case {"type": str(kind)}:
            return ResultPart(None, UNREADABLE, name=f"of the kind {kind[:64]!r}")
        case {"text": str(text)}:
            return ResultPart(text)
    return ResultPart(None, UNREADABLE)


def _text(entry: Mapping[str, Any], name: str) -> str:
    value = entry.get(name)
    return value if isinstance(value, str) else ""


def _as_json(value: object) -> str:
    # Not msgspec: a server may send integers of more than 64 bits.
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
