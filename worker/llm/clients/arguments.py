"""Parsing of a tool call's arguments, however badly a model wrote them."""

from __future__ import annotations

import json
from typing import Any, Final

import msgspec

LIMIT_CHARS: Final = 256 * 1024  # longer text is not repaired: that takes ever longer
_LENIENT: Final = json.JSONDecoder(strict=False)  # line breaks within strings are what was meant
# What programs write for "no arguments"
_NOTHING: Final = frozenset({"", "null", "None", "undefined"})


def parse_arguments(raw: str) -> dict[str, Any] | None:
    """Return the JSON object in `raw`, repaired if possible, also as the only item of a list; {}
    for blank text; None if there is no object in it. Never raises. The result can be encoded as
    JSON again."""
    text = raw.strip()
    if text in _NOTHING:
        return {}
    try:
        value = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        value = _repair(text)
    if isinstance(value, str) and value.lstrip().startswith("{"):  # encoded twice
        value = _repair(value)
    if isinstance(value, list) and len(value) <= 1:
        value = value[0] if value else {}
    return value if isinstance(value, dict) and _is_encodable(value) else None


def is_whole(raw: str) -> bool:
    """Return whether arguments are complete: JSON, and nothing behind it."""
    return len(values_in(raw)) == 1


def values_in(raw: str) -> list[str]:
    """Return the texts of the JSON values that a text is made of, one behind the other; an empty
    list for blank text, and for one that is something else or breaks off."""
    found = []
    at = 0
    text = raw.strip()
    while at < len(text):
        try:
            end = _LENIENT.raw_decode(text, at)[1]
        except (ValueError, RecursionError):
            return []
        found.append(text[at:end])
        at = end + len(text[end:]) - len(text[end:].lstrip())
    return found


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
