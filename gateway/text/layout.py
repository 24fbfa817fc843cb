"""Leaves as lines of text, with markup that has no nested blocks, or without any."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Final

import msgspec
from msgspec.structs import replace

from gateway.text.leaves import Align, Kind, Leaf, Run, Step, continued_path, text_of

RULE: Final = "──────────"

_WIDEST: Final = 64  # characters; a wider table would break on a phone, so it is shown row by row
_GROWTH: Final = 4  # most that a table may grow; past it heads are not repeated nor cells padded
_DEEPEST: Final = 24  # spaces; more would push a phone's text off its screen


class Dress(msgspec.Struct, frozen=True, kw_only=True):
    """A platform's markup for blocks. `body` writes a leaf without the marks of its lists and
    quotes; `quote` marks the whole text of a quote, but not a quote in it. Code stands outside
    quotes unless `code_in_quotes`. An item's content is indented by at least `indent` spaces."""

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
        marks = ""
        indent = 0
        inside = 0
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
    """Return leaves without markup: quotes after `> `, addresses after labels, tables in
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


def as_text(table: Leaf) -> list[Leaf]:
    """Return a small table as aligned columns in a block of code; one that is wide, or has links,
    as a paragraph for each row, with each cell after the head of its column."""
    linked = any(run.link is not None for row in table.rows for cell in row for run in cell)
    cells = [[" ".join(text_of(cell).split()) for cell in row] for row in table.rows]
    widths = [max(_width(row[at]) for row in cells) for at in range(len(table.align))]
    rest = table.rows[1:] or table.rows
    most = _GROWTH * sum(len(cell) + 3 for row in cells for cell in row)
    width = sum(widths) + 2 * len(widths)
    if not linked and width <= _WIDEST and width * len(rest) <= most:
        return [_leaf(table, "code", (Run(_columns(cells, widths, table.align), code=True),))]
    heads = table.rows[0] if table.rows[1:] and sum(map(len, cells[0])) * len(rest) <= most else ()
    rows = [runs for row in (rest if heads else table.rows) if (runs := _row_as_lines(heads, row))]
    opens = _leaf(table, "text", rows[0])
    return [opens, *(replace(opens, runs=runs, path=continued_path(table.path)) for runs in rows[1:])]


def flat(leaves: Sequence[Leaf]) -> list[Leaf]:
    """Return the leaves with every table as text."""
    return [part for leaf in leaves for part in (as_text(leaf) if leaf.kind == "table" else [leaf])]


def _leaf(table: Leaf, kind: Kind, runs: tuple[Run, ...]) -> Leaf:
    return Leaf(kind=kind, runs=runs, path=table.path, tight=table.tight)


def _columns(cells: Sequence[Sequence[str]], widths: Sequence[int], align: Sequence[Align]) -> str:
    rule = "  ".join("─" * width for width in widths)
    head, *rows = ("  ".join(map(_padded, row, widths, align)).rstrip() for row in cells)
    return "\n".join([head, rule, *rows])


def _padded(text: str, width: int, align: Align) -> str:
    left = width - _width(text)
    before = {"left": 0, "center": left // 2, "right": left}[align]
    return " " * before + text + " " * (left - before)


def _width(text: str) -> int:
    """Return the number of columns of a text in a fixed-width font."""
    marks = sum(unicodedata.category(each) in ("Mn", "Me", "Cf") for each in text)
    return len(text) - marks + sum(unicodedata.east_asian_width(each) in "WF" for each in text)


def _row_as_lines(heads: Sequence[tuple[Run, ...]], row: Sequence[tuple[Run, ...]]) -> tuple[Run, ...]:
    """Return a row as lines, `Head: cell` each."""
    runs: list[Run] = []
    for at, cell in enumerate(row):
        head = text_of(heads[at]) if at < len(heads) else ""
        if not cell and not head:
            continue
        runs += [Run("\n")] if runs else []
        runs += [Run(f"{head}:", ("bold",)), Run(" ")] if head else []
        runs += cell
    return tuple(runs)


_PLAIN: Final = Dress(body=_plain_body, quote=quoted_lines(">"), code_in_quotes=True)
