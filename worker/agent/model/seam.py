"""The seam between text that people have seen and the reply that goes on with it."""

from __future__ import annotations

import re
from typing import Final

OVERLAP_CHARS: Final = 200  # before the seam, in which repeated words are looked for
RESTART_CHARS: Final = 40  # equal at the beginning, from which a reply has begun again

_WORD: Final = re.compile(r"(?<!\S)\S")


class Seam:
    """Joins a continuation to `begun`, the text that was cut off, wherever its deltas are cut. A
    model repeats the last words, or the whole text, before it goes on: that is left out. Text is
    held back while it may be a repetition; what is held at the end is one. `restarted`: the model
    began again and went on in other words, so what is fed replaces `begun`."""

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
        self.restarted = False

    def feed(self, text: str) -> str:
        """Return what is new in `text` and all that was held back."""
        if not self._open:
            return text
        self._held += text
        repeats = any(len(one) > len(self._held) and one.startswith(self._held) for one in self._overlaps)
        return "" if repeats else self._decide()

    def _decide(self) -> str:
        self._open, held = False, self._held
        if overlap := max((one for one in self._overlaps if held.startswith(one)), key=len, default=""):
            return held[len(overlap) :]
        self.restarted = len(held) >= RESTART_CHARS and self._begun.startswith(held[:RESTART_CHARS])
        # A model that goes on after a sentence drops the space in front of the next one.
        glued = self._begun.endswith((".", "!", "?")) and held[0].isupper() and not self.restarted
        return f" {held}" if glued else held
