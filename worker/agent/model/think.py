"""Cutting `<think>...</think>` out of what a model says."""

from __future__ import annotations

from typing import Final

_OPEN: Final = "<think>"
_CLOSE: Final = "</think>"


class ThinkFilter:
    """Lets the visible part of a stream through, wherever its deltas are cut.

    Blocks do not nest; one that is never closed hides the rest; a closing tag alone is dropped.
    White space before the first visible character is dropped too.
    """

    def __init__(self) -> None:
        self._held = ""
        self._inside = False
        self._begun = False

    def feed(self, delta: str) -> str:
        """The text that may be shown now. The start of what could become a tag is held back until
        it is clear."""
        rest = self._held + delta
        if self._begun and not self._inside and "<" not in rest:
            self._held = ""
            return rest  # as nearly every delta is: it pays to see that at a glance
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
        """What was held back, once nothing more can come."""
        held, self._held = self._held, ""
        return "" if self._inside else self._visible(held)

    def _visible(self, text: str) -> str:
        if not self._begun:
            text = text.lstrip()
            self._begun = bool(text)
        return text


def strip_think(text: str) -> str:
    """The visible part of a whole text, without white space around it."""
    if "<" not in text:
        return text.strip()
    think = ThinkFilter()
    return (think.feed(text) + think.flush()).strip()


def _first(text: str, tags: tuple[str, ...]) -> tuple[int, str]:
    """Where the first whole tag begins, or where an unfinished one at the end does (then with an
    empty tag)."""
    low = text.lower() if text.isascii() else "".join(c.lower() if c.isascii() else c for c in text)
    found = [(at, tag) for tag in tags if (at := low.find(tag)) >= 0]
    if found:
        return min(found)
    at = low.rfind("<")
    if at >= 0 and any(tag.startswith(low[at:]) for tag in tags):
        return at, ""
    return len(text), ""
