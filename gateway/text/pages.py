"""The division of a document into pieces that fit into one message each."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from operator import add, le, sub
from typing import Final

import msgspec
import regex  # type: ignore[import-untyped]
from msgspec.structs import replace

from gateway.platform.protocol import Piece
from gateway.text.characters import is_blank
from gateway.text.layout import as_text, flat, plain, unlinked
from gateway.text.leaves import Leaf, Run
from gateway.text.tree import read

NOTHING: Final = Piece("…", "…")  # for a text that cannot be seen: platforms refuse empty ones
_CHARACTER: Final = regex.compile(r"\X")
_GOES_ON: Final = regex.compile(r"[\p{GCB=Extend}\p{GCB=ZWJ}\p{GCB=SpacingMark}]")
_LINE: Final = regex.compile(r"\n+")
_SENTENCE: Final = regex.compile(r"""[.!?…]["'”’»)\]*_]*\s+|[。！？；]+["'”’」』）]*\s*""")
_WORD: Final = regex.compile(r"\s+")


class PageFormat(msgspec.Struct, frozen=True, kw_only=True):
    """A platform's markup and limits of one message.

    `write` renders leaves as well-formed markup, with tables only if `tables`; `guard` is applied
    to their plain text. `size` measures a message in every way that the platform does, the length
    of its plain text first; none may exceed `limits`. Leaves together are hardly longer than the
    sum of each alone plus `gap`."""

    write: Callable[[Sequence[Leaf]], str]
    guard: Callable[[str], str] = str
    tables: bool = False
    size: Callable[[Piece], tuple[int, ...]]
    limits: tuple[int, ...]
    gap: tuple[int, ...] = (2, 2)

    def show(self, leaves: Sequence[Leaf]) -> Piece:
        return Piece(self.write(leaves), self.guard(plain(leaves)))

    def holds(self, size: Sequence[int], room: Sequence[int] | None = None) -> bool:
        """Return whether a size is within the limits, or within `room`."""
        return all(map(le, size, room or self.limits))

    def half_full(self, size: Sequence[int]) -> bool:
        return any(2 * each >= limit for each, limit in zip(size, self.limits, strict=True))


def both(measure: Callable[[str], int]) -> Callable[[Piece], tuple[int, ...]]:
    """Return a size: the plain text and the markup, measured alike."""
    return lambda piece: (measure(piece.plain), measure(piece.text))


def render(markdown: str, page: PageFormat) -> list[Piece]:
    """Return the pieces of a document in Markdown, at least one."""
    leaves = read(markdown)
    return paginate(leaves if page.tables else flat(leaves), page)


def paginate(leaves: Sequence[Leaf], page: PageFormat) -> list[Piece]:
    """Return the pieces of a document, at least one. It is divided between blocks, or else between
    items of a list; a leaf too long for a message is cut at the end of a line, a sentence or a
    word."""
    return _Paginator(leaves, page).pieces() or [NOTHING]


class _Measured(msgspec.Struct, frozen=True):
    leaf: Leaf
    size: tuple[int, ...]


class _Paginator:
    def __init__(self, leaves: Sequence[Leaf], page: PageFormat) -> None:
        self._page = page
        self._waiting = deque(map(self._measured, leaves))

    def pieces(self) -> list[Piece]:
        found: list[Piece] = []
        while self._waiting:
            held = self._next_leaves()
            while held:
                piece = self._page.show([one.leaf for one in held])
                if len(held) == 1 or self._page.holds(self._page.size(piece)):
                    found.append(piece)
                    break
                self._waiting.appendleft(held.pop())
        return found

    def _measured(self, leaf: Leaf, length: int | None = None) -> _Measured:
        if (len(leaf.text) if length is None else length) > self._page.limits[0]:
            return _Measured(leaf, tuple(limit + 1 for limit in self._page.limits))
        return _Measured(leaf, tuple(map(add, self._size(leaf), self._page.gap)))

    def _next_leaves(self) -> list[_Measured]:
        """Remove and return the leaves of the next piece; none when the first had to be changed."""
        held: list[_Measured] = []
        sums = [(0,) * len(self._page.limits)]
        while self._waiting:
            size = tuple(map(add, sums[-1], self._waiting[0].size))
            if not self._page.holds(size):
                break
            held.append(self._waiting.popleft())
            sums.append(size)
        if not self._waiting:
            return held
        keep = self._best_border(held, sums)
        if keep == 0:
            head = self._cut_first(tuple(map(sub, self._page.limits, sums[-1])), alone=not held)
            return held if head is None else [*held, head]
        self._waiting.extendleft(reversed(held[keep:]))
        return held[:keep]

    def _best_border(self, held: Sequence[_Measured], sums: Sequence[tuple[int, ...]]) -> int:
        """Return how many leaves to keep when the next one does not fit; 0 = cut that one."""
        leaves = [*(one.leaf for one in held), self._waiting[0].leaf]
        good = [at for at in range(1, len(leaves)) if self._page.half_full(sums[at])]
        if good:
            keep = min(good, key=lambda at: (_togetherness(leaves[at - 1], leaves[at]), -at))
        else:
            keep = len(held) if self._page.holds(self._waiting[0].size) else 0
        while keep > 1 and leaves[keep - 1].kind == "heading":
            keep -= 1
        return keep

    def _cut_first(self, room: tuple[int, ...], *, alone: bool) -> _Measured | None:
        """Cut off the part of the first waiting leaf that fits into `room`. None when nothing fits:
        then the leaf waits, in a simpler form if it was `alone` on the page."""
        leaf = self._waiting.popleft().leaf
        if leaf.kind == "table":
            self._waiting.extendleft(map(self._measured, reversed(as_text(leaf))))
            return None
        text = leaf.text
        at = self._cut_at(leaf, text, room)
        if not at:
            if alone and (simpler := _simpler(leaf)) != leaf:
                leaf = simpler
            elif alone:
                at = 1
        if not at:
            self._waiting.appendleft(self._measured(leaf))
            return None
        head = _head(leaf, text, at)
        tail = _tail(leaf, text, at)
        if not is_blank(text[at:]):
            self._waiting.appendleft(self._measured(tail, len(text) - at))
        return None if is_blank(text[:at]) else self._measured(head)

    def _cut_at(self, leaf: Leaf, text: str, room: tuple[int, ...]) -> int:
        """Return how many characters of a leaf to take, 0 = nothing fits."""
        most = self._most(leaf, min(len(text), room[0]), room)
        while 0 < most < len(text):
            at = _best_cut(leaf, most)
            if at == 0 or self._page.holds(self._size(_head(leaf, text, at)), room):
                return at
            most = at - 1
        return most

    def _most(self, leaf: Leaf, high: int, room: tuple[int, ...]) -> int:
        """Estimate by bisection how many characters of a leaf, at most `high`, fit into `room`."""
        low = 0
        tried = high
        while low < high and (low == 0 or low < high - high // 16):
            size = self._size(leaf.part(0, tried))
            if self._page.holds(size, room):
                low = tried
                tried = (low + high + 1) // 2
            else:
                high = tried - 1
                likely = min(tried * left // each for each, left in zip(size, room, strict=True) if each)
                tried = min(high, max(low + 1, likely if low < likely else (low + high + 1) // 2))
        return low

    def _size(self, leaf: Leaf) -> tuple[int, ...]:
        return self._page.size(self._page.show([leaf]))


def _togetherness(one: Leaf, next: Leaf) -> int:
    """Return the number of quotes, lists and items that two leaves share."""
    together = 0
    for a, b in zip(one.path, next.path, strict=False):
        if a.id != b.id:
            return together + (a.kind == b.kind == "item" and a.list == b.list)
        together += 2
    return together


def _simpler(leaf: Leaf) -> Leaf:
    """Return a leaf without what cannot be cut: links, and then the marks of lists and quotes."""
    if any(run.link is not None for run in leaf.runs):
        return unlinked(leaf)
    return replace(leaf, path=())


def _head(leaf: Leaf, text: str, at: int) -> Leaf:
    """The first part of a leaf with this text, without the white space that it is cut at."""
    head = text[:at]
    return leaf.part(0, len(head.rstrip("\n") if leaf.kind == "code" else head.rstrip()))


def _tail(leaf: Leaf, text: str, at: int) -> Leaf:
    """The other part. Indentation of code stays."""
    if leaf.kind == "code":
        return leaf.part(at)
    tail = text[at:]
    return leaf.part(at + len(tail) - len(tail.lstrip()))


def _best_cut(leaf: Leaf, most: int) -> int:
    """Return how many characters of a leaf's text, at most `most`, to take: up to the end of a
    line, a sentence or a word, and if none ends in the second half, of a whole character as people
    see it. Never inside a link: 0 when the text begins with one that is longer."""
    seen = leaf.part(0, most + 1)
    text = seen.text
    links = list(_links(seen.runs))
    for border in (_LINE,) if leaf.kind == "code" else (_LINE, _SENTENCE, _WORD):
        ends = [match.end() for match in border.finditer(text, most // 2, most)]
        for end in reversed(ends):
            if not any(start < end < stop for start, stop in links) and not _GOES_ON.match(text, end):
                return int(end)
    for start, stop in links:
        if start < most < stop:
            return start and _whole_characters(text, start)
    return _whole_characters(text, most)


def _whole_characters(text: str, most: int) -> int:
    """Return the border of a character at or before `most`; `most` if one alone is longer."""
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
