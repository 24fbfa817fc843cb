"""Removal of characters that a chat must not pass on."""

from __future__ import annotations

import re
import unicodedata
from typing import Final

from shared.terminal_text import clean as without_controls

_LINE_ENDS: Final = re.compile("\r\n?|[\u2028\u2029]")

# Embeddings, overrides and isolates reach past their own end: the host behind a link would read
# differently.
_DIRECTIONS: Final = dict.fromkeys([*range(0x202A, 0x202F), *range(0x2066, 0x206A)])

_HALVES: Final = re.compile("[\ud800-\udfff]")
_UNSEEN: Final = frozenset({"Cc", "Cf", "Zl", "Zp", "Zs"})
_FILLERS: Final = frozenset("\u115f\u1160\u2800\u3164\uffa0")


def clean(text: str) -> str:
    """Return the text without terminal codes, control characters and changes of writing direction.
    Line ends become "\\n", and a lone surrogate, which no platform accepts, a replacement
    character."""
    return _HALVES.sub("\ufffd", without_controls(_LINE_ENDS.sub("\n", text)).translate(_DIRECTIONS))


def is_blank(text: str) -> bool:
    """Return whether nothing in a text can be seen. Platforms refuse such a message."""
    return all(character in _FILLERS or unicodedata.category(character) in _UNSEEN for character in text)
