"""The length of a text, as platforms count it."""

from __future__ import annotations

import msgspec


def utf16(text: str) -> int:
    """Return the number of UTF-16 code units: an emoji is two."""
    return len(text.encode("utf-16-le")) // 2


def utf8(text: str) -> int:
    """Return the number of bytes."""
    return len(text.encode())


def json_bytes(text: str) -> int:
    """Return the number of bytes of the text as a JSON string."""
    return len(msgspec.json.encode(text))
