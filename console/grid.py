"""Lines that fit a terminal: tables that drop their least important columns, and flowing facts."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from shared.terminal_text import clean_line

WARNING: Final = "yellow"
WRONG: Final = "bold red"
GAP: Final = 2
LABEL: Final = 9
LONG: Final = 16  # cells of up to this length are never cut: ids, references, numbers


class Column(NamedTuple):
    """A column of a table. On a narrow terminal it is cut to `least` cells (0: never), at its front
    unless `from_end`, because names of processes differ at their ends. After that the columns with
    the lowest `keep` are dropped."""

    title: str
    keep: int = 5
    right: bool = False
    least: int = 0
    from_end: bool = False


class Cell(NamedTuple):
    """Text of a table cell and its style."""

    text: str
    style: str = ""


def print_lines(lines: Iterable[Text]) -> None:
    """Print lines, in colour only on a terminal and without NO_COLOR."""
    console = Console(highlight=False, markup=False, emoji=False)
    for line in lines:
        console.print(line, no_wrap=True, overflow="ignore", crop=False)


def out_width() -> int:
    """Return the width of the terminal; in a pipe nothing is left out or cut."""
    return Console().width if sys.stdout.isatty() else 1_000_000


def print_table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print a table. On a terminal long cells are cut, but no column is left out."""
    cells = [[Cell(str(cell)) for cell in row] for row in rows]
    columns = [Column(title, least=max(LONG, cell_len(title)), from_end=True) for title in header]
    print_lines(grid(columns, cells, out_width(), all_columns=True))


def grid(
    columns: Sequence[Column], rows: Sequence[Sequence[Cell]], width: int, *, all_columns: bool = False
) -> list[Text]:
    """Render titles and rows within `width`, unless `all_columns`. Drops empty columns."""
    titles = [Cell(column.title, "dim") for column in columns]
    cells = [titles, *([Cell(clean_line(cell.text), cell.style) for cell in row] for row in rows)]
    shown = list(range(len(columns)))
    if rows and not all_columns:
        shown = [at for at in shown if any(row[at].text for row in cells[1:])]
    while True:
        widths = {at: max(cell_len(row[at].text) for row in cells) for at in shown}
        over = sum(widths.values()) + GAP * (len(shown) - 1) - width
        while over > 0 and (wide := [at for at in shown if 0 < columns[at].least < widths[at]]):
            widest = max(wide, key=lambda at: widths[at])
            cut = max(1, min(over, widths[widest] - columns[widest].least) // len(wide))
            widths[widest] -= cut
            over -= cut
        if all_columns or len(shown) == 1 or over <= 0:
            break
        shown.remove(min(shown, key=lambda at: (columns[at].keep, -at)))
    gap = Text(" " * GAP)
    lines = [gap.join(_fit(row[at], columns[at], widths[at]) for at in shown) for row in cells]
    for line in lines:
        line.rstrip()
    return lines


def flow(label: str, facts: Iterable[Text], width: int) -> list[Text]:
    """Render facts on lines, as many as fit on each; the label comes before the first."""
    lines = [Text.assemble((label.ljust(LABEL), "dim"))]
    for fact in facts:
        gap = GAP + 1 if lines[-1].cell_len > LABEL else 0
        if gap and lines[-1].cell_len + gap + fact.cell_len > width:
            lines.append(Text(" " * LABEL))
            gap = 0
        lines[-1].append(" " * gap).append_text(fact)
    for line in lines:
        line.truncate(width, overflow="ellipsis")
    return lines


def fact(text: str, style: str = "", *, name: str = "", after: str = "") -> Text:
    """Render a fact. Its name and what follows it are dim, so that the number stands out."""
    parts = [(name, "dim"), (clean_line(text), style), (after, "dim")]
    return Text(" ").join(Text(part, style=look) for part, look in parts if part)


def wrapped(text: str, style: str, width: int) -> list[Text]:
    """Wrap a sentence; lines after the first are indented."""
    first, *others = Text(clean_line(text), style=style).wrap(Console(), max(1, width - 2))
    return [first, *(Text("  ", style=style).append_text(line) for line in others)]


def _fit(cell: Cell, column: Column, width: int) -> Text:
    text = cell.text
    while not column.from_end and cell_len(text) > width:
        text = "…" + text.removeprefix("…")[1:]
    fitted = Text().append(text, cell.style)
    fitted.truncate(width, overflow="ellipsis")
    fitted.align("right" if column.right else "left", width)
    return fitted
