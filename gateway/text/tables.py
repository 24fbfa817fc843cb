"""Tables as text, for platforms without tables."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from typing import Final

from msgspec.structs import replace

from gateway.text.leaves import Align, Kind, Leaf, Run, continued_path, text_of

_WIDEST: Final = 64  # characters; a wider table would break on a phone, so it is shown row by row
_GROWTH: Final = 4
"""Largest factor by which a table may grow; past it heads are not repeated and cells not padded."""


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
