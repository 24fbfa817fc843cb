"""How long a text is, as platforms count."""

from __future__ import annotations

import msgspec


def utf16(text: str) -> int:
    """UTF-16 code units: an emoji is two."""
    return len(text.encode("utf-16-le")) // 2


def utf8(text: str) -> int:
    """Bytes."""
    return len(text.encode())


def json_bytes(text: str) -> int:
    """Bytes of it as a string of JSON."""
    return len(msgspec.json.encode(text))
