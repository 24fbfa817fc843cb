"""The seam between text that people have seen and the reply that goes on with it."""

from __future__ import annotations

import re
from typing import Final

OVERLAP_CHARS: Final = 200  # before the seam, in which repeated words are looked for
RESTART_CHARS: Final = 40  # equal at the beginning, from which a reply has begun again

ANNOUNCED_CHARS: Final = 160
"""A line that announces the rest is shorter."""

_ANNOUNCES: Final = re.compile(
    r"(?i)\s*(?:(?:sure|certainly|of course|okay|ok|absolutely|sorry|apologies)\b[^\w\n]*)?"
    r"(?:here(?:['’]s| is| are)|continuing|let me continue|i(?:['’]ll| will) continue|picking up|resuming)\b"
    r"[^\n]{0,80}?\b(?:the rest|continu\w*|remaind\w*|remaining|left off|stopped|cut off|where (?:it|i|we))\b"
    r"[^\n]{0,60}[:.…]+[ *_]*\n"
)
_MAY_ANNOUNCE: Final = (
    *("sure", "certainly", "of course", "ok", "absolutely", "sorry", "apologies", "here", "continuing", "let me"),
    *("i'll continue", "i’ll continue", "i will continue", "picking up", "resuming"),
)
_WORD: Final = re.compile(r"(?<!\S)\S")


class Seam:
    """Joins a continuation to `begun`, the text that was cut off, wherever its deltas are cut. A
    model announces the rest in a line ("Sure, here is the rest:"), and repeats the last words, or
    the whole text, before it goes on: that is left out. Text is held back while it may be a
    repetition; what is held at the end is one. `restarted`: the model began again and went on in
    other words, so what is fed replaces `begun`."""

    def __init__(self, begun: str) -> None:
        stem = begun.rstrip()
        near = max(0, len(stem) - OVERLAP_CHARS)
        starts = {0, *(word.start() for word in _WORD.finditer(stem, near))}
        # White space at the end may be repeated alone, or be left out after a repeated word.
        ends = {begun[at:] for at in range(len(stem), len(begun))}
        self._overlaps = {begun[at:] for at in starts} | {stem[at:] for at in starts} | ends
        self._begun = begun
        self._held = ""
        self._open = True
        self._announced = False
        self.restarted = False

    def feed(self, text: str) -> str:
        """Return what is new in `text` and all that was held back."""
        if not self._open:
            return text
        self._held += text
        if not self._announced and self._may_announce():
            return ""
        if self._announced:
            self._held = self._held.lstrip("\n")
        if not self._held:
            return ""
        repeats = any(len(one) > len(self._held) and one.startswith(self._held) for one in self._overlaps)
        return "" if repeats else self._decide()

    def flush(self) -> str:
        """Return what is new in what was held back because it might have announced the rest: nothing followed."""
        if not self._open or self._announced or any(one.startswith(self._held) for one in self._overlaps):
            return ""
        return self._decide()

    def _may_announce(self) -> bool:
        """Return whether more text has to tell if a line announces the rest. One that does is dropped."""
        found = _ANNOUNCES.match(self._held)
        if found is not None and found.end() <= ANNOUNCED_CHARS:
            self._held = self._held[found.end() :]
            self._announced = True
            return False
        low = self._held.lstrip().lower()
        line_is_open = "\n" not in low and len(self._held) < ANNOUNCED_CHARS
        return line_is_open and any(low.startswith(word) or word.startswith(low) for word in _MAY_ANNOUNCE)

    def _decide(self) -> str:
        self._open = False
        held = self._held
        if overlap := max((one for one in self._overlaps if held.startswith(one)), key=len, default=""):
            return held[len(overlap) :]
        self.restarted = len(held) >= RESTART_CHARS and self._begun.startswith(held[:RESTART_CHARS])
        # A model that goes on after a sentence drops the space in front of the next one.
        glued = self._begun.endswith((".", "!", "?")) and held[0].isupper() and not self.restarted
        parted = self._announced and self._begun[-1].isalnum() and held[0].isalnum()
        return f" {held}" if glued or parted else held
