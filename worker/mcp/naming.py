"""Which tools of a server can be offered, and under which names."""

from __future__ import annotations

import hashlib
import re
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from worker.documents.untrusted import visible
from worker.mcp.wire import Listed

PREFIX: Final = "mcp_"
DESCRIPTION_CHARS: Final = 1000
NAME_CHARS: Final = 256
SCHEMA_BYTES: Final = 8 * 1024
SCHEMA_DEPTH: Final = 12
TOOLS_OFFERED: Final = 64
"""Of one server; a model that is offered hundreds chooses badly."""

_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
_PROPERTY: Final = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_COMBINED: Final = ("anyOf", "oneOf", "allOf", "not", "enum", "$ref")
_WORDS: Final = ("description", "title")


def tool_name(server: str, tool: str, *, marked: bool = False) -> str:
    """`mcp_<server>_<tool>`, the same on every worker. One that providers do not take, or that must
    be `marked` as another is named so, ends in a hash of the tool's real name."""
    plain = f"{PREFIX}{server}_{tool}"
    if _NAME.fullmatch(plain) and not marked:
        return plain
    mark = hashlib.sha256(f"{server}\0{tool}".encode("utf-8", "replace")).hexdigest()[:8]
    return f"{re.sub(r'[^A-Za-z0-9_-]', '_', plain)[: 64 - len(mark) - 1]}_{mark}"


def bounded(listed: Listed) -> Listed:
    """The tool as it may be kept: of one that cannot be offered no more than its name and why, as a
    list may bring thousands of such in messages of megabytes."""
    try:
        if len(listed.name) > NAME_CHARS:
            raise ValueError(f"its name has {len(listed.name):,} characters; at most {NAME_CHARS} are taken")
        fitting_schema(listed)
    except ValueError as exc:
        return Listed(listed.name[:NAME_CHARS], unfit=str(exc))
    return replace(listed, description=listed.description[: 4 * DESCRIPTION_CHARS])


def description(server: str, listed: Listed) -> str:
    """What a model is told of a tool: where it comes from, and what its server says of it, in
    bounds."""
    text = " ".join(visible(listed.description[: 4 * DESCRIPTION_CHARS]).split())
    text = text if len(text) <= DESCRIPTION_CHARS else text[: DESCRIPTION_CHARS - 1] + "…"
    return f"[of the MCP server {server!r}] {text or 'without a description'}"


def fitting_schema(listed: Listed) -> dict[str, Any]:
    """The schema of a tool as providers take it. Raises ValueError with what is wrong with it: one
    tool that a provider refuses would end every call of the model."""
    if listed.unfit:
        raise ValueError(listed.unfit)
    schema = listed.schema
    if schema.get("type", "object") != "object":
        raise ValueError("its parameters are no object")
    if _depth(schema) > SCHEMA_DEPTH:
        raise ValueError(f"its schema is nested more than {SCHEMA_DEPTH} deep")
    size = len(msgspec.json.encode(schema))
    if size > SCHEMA_BYTES:
        raise ValueError(f"its schema has {size:,} bytes; at most {SCHEMA_BYTES:,} are taken")
    for name in _COMBINED:
        if name in schema:
            raise ValueError(f"its schema has {name!r} at the top, which providers do not take")
    properties = schema.get("properties", {})
    if not isinstance(properties, dict) or not all(_PROPERTY.fullmatch(name) for name in properties):
        raise ValueError("its parameters have names that providers do not take")
    required = schema.get("required", [])
    if not isinstance(required, list) or not all(isinstance(name, str) for name in required):
        raise ValueError("its required parameters are no list of names")
    if _refers_outside(schema):
        raise ValueError("its schema refers to another document")
    rest = {name: value for name, value in schema.items() if name not in ("$schema", "$id")}
    cleaned: dict[str, Any] = _cleaned({**rest, "type": "object", "properties": properties})
    text = msgspec.json.encode(cleaned).decode()  # names, choices and defaults: what changes them breaks the tool
    if visible(text) != text:
        raise ValueError("its schema has characters that nobody sees")
    return cleaned


def _depth(value: object, depth: int = 0) -> int:
    if depth > SCHEMA_DEPTH or not isinstance(value, dict | list):
        return depth
    inner = value.values() if isinstance(value, dict) else value
    return max((_depth(one, depth + 1) for one in inner), default=depth)


def _refers_outside(value: object) -> bool:
    if isinstance(value, list):
        return any(map(_refers_outside, value))
    if not isinstance(value, dict):
        return False
    target = value.get("$ref")
    return (isinstance(target, str) and not target.startswith("#")) or any(map(_refers_outside, value.values()))


def _cleaned(value: Any) -> Any:
    """The same without characters in its descriptions that nobody sees."""
    if isinstance(value, list):
        return [_cleaned(one) for one in value]
    if not isinstance(value, dict):
        return value
    return {
        name: visible(inner) if name in _WORDS and isinstance(inner, str) else _cleaned(inner)
        for name, inner in value.items()
    }
