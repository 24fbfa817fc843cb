"""Removal of `<think>...</think>` from a model's output."""

from __future__ import annotations

from typing import Final

_OPEN: Final = "<think>"
_CLOSE: Final = "</think>"


class ThinkFilter:
    """Passes on the visible part of a stream, wherever its deltas are cut. Blocks do not nest; a
    block that is never closed hides the rest; lone closing tags and leading white space are
    dropped."""

    def __init__(self) -> None:
        self._held = ""
        self._inside = False
        self._begun = False

    def feed(self, delta: str) -> str:
        """Return the text that may be shown now. The start of a possible tag is held back."""
        rest = self._held + delta
        if self._begun and not self._inside and "<" not in rest:
            self._held = ""
            return rest  # the common case, handled without the search for tags below
        self._held = ""
        shown: list[str] = []
        while rest:
            tags = (_CLOSE,) if self._inside else (_OPEN, _CLOSE)
            at, tag = _first(rest, tags)
            if not self._inside:
                shown.append(rest[:at])
            if not tag:
                self._held = rest[at:]
                break
            self._inside = tag == _OPEN
            rest = rest[at + len(tag) :]
        return self._visible("".join(shown))

    def flush(self) -> str:
        held, self._held = self._held, ""
        return "" if self._inside else self._visible(held)

    def _visible(self, text: str) -> str:
        if not self._begun:
            text = text.lstrip()
            self._begun = bool(text)
        return text


def strip_think(text: str) -> str:
    """Return the visible part of a whole text, without white space around it."""
    if "<" not in text:
        return text.strip()
    think = ThinkFilter()
    return (think.feed(text) + think.flush()).strip()


def _first(text: str, tags: tuple[str, ...]) -> tuple[int, str]:
    """Return the position of the first whole tag, or of an unfinished one at the end (tag `""`)."""
    low = text.lower() if text.isascii() else "".join(c.lower() if c.isascii() else c for c in text)
    found = [(at, tag) for tag in tags if (at := low.find(tag)) >= 0]
    if found:
        return min(found)
    at = low.rfind("<")
    if at >= 0 and any(tag.startswith(low[at:]) for tag in tags):
        return at, ""
    return len(text), ""
