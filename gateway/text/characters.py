"""Characters that a chat must not pass on or cannot show, and their number on platforms."""

from __future__ import annotations

import re
import unicodedata
from typing import Final

import msgspec

from shared.terminal_text import clean as without_controls

_LINE_ENDS: Final = re.compile("\r\n?|[\u2028\u2029]")

_HALVES: Final = re.compile("[\ud800-\udfff]")
_UNSEEN: Final = frozenset({"Cc", "Cf", "Zl", "Zp", "Zs"})
_FILLERS: Final = frozenset("\u115f\u1160\u2800\u3164\uffa0")


def clean(text: str) -> str:
    """Return the text without terminal codes, control characters and changes of writing direction;
    line ends are "\\n", and lone surrogates, which no platform accepts, replacement characters."""
    return _HALVES.sub("\ufffd", without_controls(_LINE_ENDS.sub("\n", text)))


def is_blank(text: str) -> bool:
    """Return whether nothing in a text can be seen. Platforms refuse such a message."""
    return all(each in _FILLERS or unicodedata.category(each) in _UNSEEN for each in text)


def utf16(text: str) -> int:
    """Return the number of UTF-16 code units: an emoji is two."""
    return len(text.encode("utf-16-le")) // 2


def utf8(text: str) -> int:
    """Return the number of bytes."""
    return len(text.encode())


def json_bytes(text: str) -> int:
    """Return the number of bytes of the text as a JSON string."""
    return len(msgspec.json.encode(text))
