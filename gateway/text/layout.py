"""Leaves as lines of text, for platforms whose markup has no nested blocks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Final

import msgspec

from gateway.text.leaves import Leaf, Step

_DEEPEST: Final = 24  # spaces; more would push a phone's text off its screen


class Dress(msgspec.Struct, frozen=True, kw_only=True):
    """A platform's markup for blocks. `body` writes a leaf without the marks of its lists and
    quotes; `quote` marks the whole text of a quote, and a quote within it is not marked again. Code
    stands outside quotes unless `code_in_quotes`. The content of an item is indented by at least
    `indent` spaces."""

    body: Callable[[Leaf], str]
    quote: Callable[[str], str]
    bullet: str = "• "
    indent: int = 0
    code_in_quotes: bool = False


def lay_out(leaves: Sequence[Leaf], dress: Dress) -> str:
    """Return the text of some leaves. An item that began before them has no mark and no indent."""
    opened: set[int] = set()
    written: list[str] = []
    last: Leaf | None = None
    for quote, group in groupby(leaves, lambda leaf: _quote(leaf, dress)):
        inside: list[str] = []
        for leaf in group:
            gap = "" if last is None else "\n" if _close(last, leaf) else "\n\n"
            (inside or written).append(gap)  # the gap before a quote is no part of it
            inside.append(_marked(leaf, dress, opened))
            last = leaf
        written.append(dress.quote("".join(inside)) if quote else "".join(inside))
    return "".join(written)


def _quote(leaf: Leaf, dress: Dress) -> int:
    """Return the id of the outermost quote that a leaf is shown in, 0 = none."""
    if leaf.kind == "code" and not dress.code_in_quotes:
        return 0
    return next((step.id for step in leaf.path if step.kind == "quote"), 0)


def _close(before: Leaf, leaf: Leaf) -> bool:
    """Return whether two leaves have no blank line between them: they are in one tight list."""
    return leaf.tight and not _lists(before.path).isdisjoint(_lists(leaf.path))


def _lists(path: Sequence[Step]) -> set[int]:
    return {step.list for step in path if step.kind == "item"}


def _marked(leaf: Leaf, dress: Dress, opened: set[int]) -> str:
    """Return a leaf after the marks of the items that it opens, indented by those that it is in."""
    marks, indent, inside = "", 0, 0
    for step in leaf.path:
        if step.kind == "item":
            mark = dress.bullet if step.number is None else f"{step.number}. "
            if step.opens:
                opened.add(step.id)
                marks += mark
                inside += max(dress.indent, len(mark))
            elif step.id in opened:
                indent += max(dress.indent, len(mark))
    body = dress.body(leaf)
    first = " " * min(indent, _DEEPEST) + marks
    if leaf.kind == "code":  # its own indentation has a meaning, so none is added
        return f"{first.rstrip()}\n{body}" if marks else body
    return first + body.replace("\n", "\n" + " " * min(indent + inside, _DEEPEST))
