"""Leaves as lines of text, for platforms whose markup has no nested blocks, and as plain text, for
people and for whatever refuses markup."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Final

import msgspec
from msgspec.structs import replace

from gateway.text.leaves import Leaf, Run, Step, text_of
from gateway.text.tables import as_text

RULE: Final = "──────────"

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

    def lay_out(self, leaves: Sequence[Leaf]) -> str:
        """Return the text of leaves. An item that began before them has no mark and no indent."""
        opened: set[int] = set()
        written: list[str] = []
        last: Leaf | None = None
        for quote, group in groupby(leaves, self._quote_id):
            inside: list[str] = []
            for leaf in group:
                gap = "" if last is None else "\n" if _close(last, leaf) else "\n\n"
                (inside or written).append(gap)  # the gap before a quote is no part of it
                inside.append(self._marked(leaf, opened))
                last = leaf
            written.append(self.quote("".join(inside)) if quote else "".join(inside))
        return "".join(written)

    def _quote_id(self, leaf: Leaf) -> int:
        """Return the id of the outermost quote that a leaf is shown in, 0 = none."""
        if leaf.kind == "code" and not self.code_in_quotes:
            return 0
        return next((step.id for step in leaf.path if step.kind == "quote"), 0)

    def _marked(self, leaf: Leaf, opened: set[int]) -> str:
        """Return a leaf after the marks of items that it opens, indented by those that it is in."""
        marks, indent, inside = "", 0, 0
        for step in leaf.path:
            if step.kind == "item":
                mark = self.bullet if step.number is None else f"{step.number}. "
                if step.opens:
                    opened.add(step.id)
                    marks += mark
                    inside += max(self.indent, len(mark))
                elif step.id in opened:
                    indent += max(self.indent, len(mark))
        body = self.body(leaf)
        first = " " * min(indent, _DEEPEST) + marks
        if leaf.kind == "code":  # its own indentation has a meaning, so none is added
            return f"{first.rstrip()}\n{body}" if marks else body
        return first + body.replace("\n", "\n" + " " * min(indent + inside, _DEEPEST))


def plain(leaves: Sequence[Leaf]) -> str:
    """Return leaves without markup: quotes after `> `, addresses after labels, tables as
    columns."""
    return _PLAIN.lay_out(leaves)


def unlinked(leaf: Leaf) -> Leaf:
    """Return a leaf with the addresses of its links as text."""
    found: list[Run] = []
    for link, group in groupby(leaf.runs, lambda run: run.link):
        found += [replace(run, link=None) for run in group]
        found += [Run(link.address_behind)] if link is not None and not link.bare else []
    return replace(leaf, runs=tuple(found))


def quoted_lines(mark: str) -> Callable[[str], str]:
    """Return a function that puts a mark before each line."""
    return lambda text: "\n".join(f"{mark} {line}".rstrip() for line in text.split("\n"))


def _close(before: Leaf, leaf: Leaf) -> bool:
    """Return whether two leaves have no blank line between them: they are in one tight list."""
    return leaf.tight and not _lists(before.path).isdisjoint(_lists(leaf.path))


def _lists(path: Sequence[Step]) -> set[int]:
    return {step.list for step in path if step.kind == "item"}


def _plain_body(leaf: Leaf) -> str:
    match leaf.kind:
        case "rule":
            return RULE
        case "table":
            return plain([replace(part, path=()) for part in as_text(leaf)])
        case _:
            return text_of(unlinked(leaf).runs)


_PLAIN: Final = Dress(body=_plain_body, quote=quoted_lines(">"), code_in_quotes=True)
