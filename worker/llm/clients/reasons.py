"""What a provider said when it refused: the words in the body of its answer, whatever its form."""

from __future__ import annotations

import re
from typing import Any, Final

import msgspec

# The names under which providers and gateways put their words, the most telling first.
_NAMES: Final = (
    *("error", "errors", "fault", "message", "detail", "details", "msg", "reason", "error_msg", "errorMessage"),
    *("error_message", "error_description", "status_msg", "base_resp", "title", "description", "text"),
)
# Where a gateway keeps what the provider behind it said, beside its own "Provider returned error".
_BEHIND: Final = ("metadata", "raw", "innererror", "upstream_error", "provider_error", "cause")
_DEPTH: Final = 8  # an honest body has at most five
_TITLE: Final = re.compile(r"<(?:title|h1)[^>]*>([^<]*)<", re.IGNORECASE)
_EVENT: Final = re.compile(r"^data:\s*(?=[{\[])", re.MULTILINE)


def read_reason(body: str) -> str:
    """Return the words in the body of a refusal as one line: those of its error, the title of a
    page, or a plain text. They are not cut: half a secret could not be recognised and masked any
    more."""
    return words_of(_decoded(body.strip()))


def words_of(value: Any) -> str:
    """Return the words in a decoded error as one line."""
    words = _words(value, _DEPTH)
    return " ".join("".join(char if char.isprintable() else " " for char in words).split())


def _decoded(text: str) -> Any:
    """Return the value of JSON, also of an event of a stream; else the text."""
    event = _EVENT.search(text)
    try:
        return msgspec.json.decode(text[event.end() :].partition("\n")[0] if event else text)
    except (msgspec.DecodeError, RecursionError, UnicodeError):
        title = _TITLE.search(text)
        return (title[1] if title else "") if "<" in text[:200] else text


def _words(value: Any, depth: int) -> str:
    if depth == 0:
        return ""
    if isinstance(value, str):
        # JSON in a text is what a gateway got from the provider.
        nested = value.lstrip().startswith(("{", "["))
        return (_words(_decoded(value), depth - 1) or value) if nested and _decoded(value) != value else value
    if isinstance(value, list):
        return "; ".join(dict.fromkeys(filter(None, (_words(one, depth - 1) for one in value[:3]))))
    if not isinstance(value, dict):
        return ""
    found = {name.lower(): one for name, one in value.items() if isinstance(name, str)}
    own = next(filter(None, (_words(found.get(name.lower()), depth - 1) for name in _NAMES)), "")
    behind = next(filter(None, (_words(found.get(name), depth - 1) for name in _BEHIND)), "")
    return f"{own}: {behind}" if own and behind and behind not in own else own or behind
