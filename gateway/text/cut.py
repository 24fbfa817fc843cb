"""The best place to cut a text that is too long."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Final

import regex  # type: ignore[import-untyped]

from gateway.text.leaves import Leaf, Run

_CHARACTER: Final = regex.compile(r"\X")
_GOES_ON: Final = regex.compile(r"[\p{GCB=Extend}\p{GCB=ZWJ}\p{GCB=SpacingMark}]")
_LINE: Final = regex.compile(r"\n+")
_SENTENCE: Final = regex.compile(r"""[.!?…]["'”’»)\]*_]*\s+|[。！？；]+["'”’」』）]*\s*""")
_WORD: Final = regex.compile(r"\s+")


def best_cut(leaf: Leaf, most: int) -> int:
    """Return how many characters of a leaf's text, at most `most`, to take: up to the end of a
    line, a sentence or a word, and if none ends in the second half, of a whole character as people
    see it. Never inside a link: 0 when the text begins with one that is longer."""
    seen = leaf.part(0, most + 1)
    text, links = seen.text, list(_links(seen.runs))
    for border in (_LINE,) if leaf.kind == "code" else (_LINE, _SENTENCE, _WORD):
        found = [
            match.end()
            for match in border.finditer(text, most // 2, most)
            if not _inside(match.end(), links) and not _GOES_ON.match(text, match.end())
        ]
        if found:
            return int(found[-1])
    for start, stop in links:
        if start < most < stop:
            return start and _whole_characters(text, start)
    return _whole_characters(text, most)


def _whole_characters(text: str, most: int) -> int:
    """Return the border of a character at or before `most`; `most` itself if one character alone is
    longer."""
    space = max(text.rfind(" ", 0, most), text.rfind("\n", 0, most), 0)
    reached = space
    for match in _CHARACTER.finditer(text, space):
        if match.end() > most:
            break
        reached = match.end()
    return reached or most


def _links(runs: Sequence[Run]) -> Iterator[tuple[int, int]]:
    """Yield where each link begins and ends; a link of several runs is one."""
    ends = list(accumulate((len(run.text) for run in runs), initial=0))
    start = 0
    for at, run in enumerate(runs):
        if at == 0 or run.link is None or run.link != runs[at - 1].link:
            start = ends[at]
        if run.link is not None and (at + 1 == len(runs) or runs[at + 1].link != run.link):
            yield start, ends[at + 1]


def _inside(at: int, links: Sequence[tuple[int, int]]) -> bool:
    return any(start < at < stop for start, stop in links)
