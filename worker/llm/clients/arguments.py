"""Parsing of a tool call's arguments, however badly a model wrote them."""

from __future__ import annotations

from typing import Any, Final

import msgspec

LIMIT_CHARS: Final = 256 * 1024  # longer text is not repaired: that takes ever longer


def parse_arguments(raw: str) -> dict[str, Any] | None:
    """Return the JSON object in `raw`, repaired if possible; {} for blank text; None if there is no
    object in it. Never raises. The result can be encoded as JSON again."""
    text = raw.strip()
    if not text:
        return {}
    try:
        value = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        value = _repair(text)
    if isinstance(value, str) and value.lstrip().startswith("{"):  # encoded twice
        value = _repair(value)
    return value if isinstance(value, dict) and _is_encodable(value) else None


def _repair(text: str) -> Any:
    if len(text) > LIMIT_CHARS or "{" not in text:
        return None
    import json_repair  # only needed when a model wrote something broken

    try:
        return json_repair.loads(text)
    except (ValueError, TypeError, IndexError, KeyError, AttributeError, RecursionError):
        return None


def _is_encodable(value: dict[str, Any]) -> bool:
    try:
        msgspec.json.encode(value)
    except (TypeError, ValueError, RecursionError, msgspec.MsgspecError):
        return False
    return True
