"""Characters that a provider cut in two: halves of surrogate pairs, and bytes that are no UTF-8
alone."""

from __future__ import annotations

import re
from typing import Final

_HALVES: Final = re.compile(r"[\ud800-\udfff]{1,3}\Z")
_BYTES: Final = re.compile(r"[\udc80-\udcff]+")


def join_halves(text: str) -> str:
    """Return a text without lone surrogates: pairs become their character, bytes that were escaped
    as surrogates become the UTF-8 that they are, and what remains becomes the replacement
    character."""
    if text.isascii() or not re.search(r"[\ud800-\udfff]", text):
        return text
    paired = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
    decoded = _BYTES.sub(lambda found: _decoded(found[0]), paired)
    return re.sub(r"[\ud800-\udfff]", "\ufffd", decoded)


def split_at_halves(text: str) -> tuple[str, str]:
    """Return the part of a text that is whole, and a character's beginning at its end."""
    found = _HALVES.search(text)
    if found is None:
        return text, ""
    tail = found[0]
    whole = join_halves(tail)
    return (text, "") if "\ufffd" not in whole else (text[: found.start()], tail)


def _decoded(escaped: str) -> str:
    return escaped.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
