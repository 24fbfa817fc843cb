"""Texts for a model: valid, short, and marked where they are cut."""

from __future__ import annotations

import re
from typing import Any, Final

import msgspec

SMALLER: Final = "ask for a smaller part"
_FENCE_END: Final = re.compile(r"\n\[end [0-9a-f]{12}\]\Z")


def valid_text(text: str) -> str:
    """Return the text with lone surrogates, which no codec can write, replaced by `?`."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")


def is_json_object(text: str) -> bool:
    """Return whether a text is one complete JSON object."""
    try:
        msgspec.json.decode(text, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return False
    return True


def shorten(text: str, chars: int) -> str:
    """Return at most `chars` characters; a shortened text ends in an ellipsis."""
    return text if len(text) <= chars else text[: chars - 1] + "…"


def cut(text: str, limit_bytes: int, *, rest: str = SMALLER) -> str:
    """Return at most `limit_bytes` of UTF-8, and a note that says how much was left out, and
    `rest`. A fence around untrusted text stays closed: it must not run into text after it."""
    data = text.encode("utf-8")
    if len(data) <= limit_bytes:
        return text
    closed = _FENCE_END.search(text)
    end = closed.group() if closed and len(closed.group()) < limit_bytes else ""
    kept = data[: limit_bytes - len(end)].decode("utf-8", "ignore")
    missing = f"{len(data) - limit_bytes:,} of {len(data):,} bytes are left out"
    return f"{kept}{end}\n\n[cut: {missing}; {rest}]"
