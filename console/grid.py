"""Lines that fit a terminal: tables that drop their least important columns, and flowing facts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.text import Text

from shared.terminal_text import clean_line

WARNING: Final = "yellow"
WRONG: Final = "bold red"
GAP: Final = 2
LABEL: Final = 9
LONG: Final = 16
"""Cells of up to this length are never cut: ids, references, numbers."""


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


def fitted_table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A table for standard output, a terminal: long cells are cut, and no column is left out."""
    console = Console(highlight=False, markup=False, emoji=False)
    cells = [[Cell(str(cell)) for cell in row] for row in rows]
    columns = [Column(title, least=max(LONG, cell_len(title)), from_end=True) for title in header]
    with console.capture() as captured:
        for line in grid(columns, cells, console.width, all_columns=True):
            console.print(line, no_wrap=True, overflow="ignore", crop=False)
    return captured.get().rstrip("\n")


def grid(
    columns: Sequence[Column], rows: Sequence[Sequence[Cell]], width: int, *, all_columns: bool = False
) -> list[Text]:
    """Render a title line and a line per row, none longer than `width` unless `all_columns`. An
    empty column is dropped."""
    cells = [[Cell(clean_line(cell.text), cell.style) for cell in row] for row in rows]
    shown = [at for at in range(len(columns)) if all_columns or not rows or any(row[at].text for row in cells)]
    while True:
        widths = {at: max(cell_len(columns[at].title), *(cell_len(row[at].text) for row in cells), 0) for at in shown}
        _squeeze(widths, columns, width)
        if all_columns or len(shown) == 1 or _total(widths) <= width:
            break
        shown.remove(min(shown, key=lambda at: (columns[at].keep, -at)))
    titles = [Cell(column.title, "dim") for column in columns]
    return [_line([(row[at], columns[at], widths[at]) for at in shown]) for row in (titles, *cells)]


def flow(label: str, facts: Iterable[Text], width: int) -> list[Text]:
    """Render facts on lines, as many as fit on each; the label comes before the first."""
    lines = [Text.assemble((label.ljust(LABEL), "dim"))]
    empty = True
    for fact in facts:
        gap = 0 if empty else GAP + 1
        if not empty and lines[-1].cell_len + gap + fact.cell_len > width:
            lines.append(Text(" " * LABEL))
            gap = 0
        lines[-1].append(" " * gap).append_text(fact)
        empty = False
    for line in lines:
        line.truncate(width, overflow="ellipsis")
    return lines


def fact(text: str, style: str = "", *, name: str = "", after: str = "") -> Text:
    """Render a fact. Its name and what follows it are dim, so that the number stands out."""
    parts = [(name, "dim"), (clean_line(text), style), (after, "dim")]
    return Text(" ").join(Text(part, style=look) for part, look in parts if part)


def wrapped(text: str, style: str, width: int) -> list[Text]:
    """Wrap a sentence; lines after the first are indented."""
    lines = [""]
    for word in clean_line(text).split():
        if lines[-1].strip() and cell_len(lines[-1]) + 1 + cell_len(word) > width:
            lines.append(f"  {word}")
        else:
            lines[-1] += f" {word}" if lines[-1] else word
    lines_out = [Text(line, style=style) for line in lines]
    for line in lines_out:
        line.truncate(width, overflow="ellipsis")
    return lines_out


def _squeeze(widths: dict[int, int], columns: Sequence[Column], width: int) -> None:
    """Shrink the widest columns that may shrink until the table fits."""
    while (over := _total(widths) - width) > 0:
        can = [at for at in widths if columns[at].least and widths[at] > columns[at].least]
        if not can:
            return
        widest = max(can, key=lambda at: widths[at])
        widths[widest] -= max(1, min(over, widths[widest] - columns[widest].least) // len(can))


def _total(widths: dict[int, int]) -> int:
    return sum(widths.values()) + GAP * (len(widths) - 1)


def _line(parts: Sequence[tuple[Cell, Column, int]]) -> Text:
    line = Text()
    for at, (cell, column, width) in enumerate(parts):
        right = column.right
        text = _cut(cell.text, width, column.from_end)
        pad = " " * (width - cell_len(text))
        line.append(" " * GAP if at else "")
        line.append(pad if right else "").append(text, style=cell.style).append("" if right else pad)
    line.rstrip()
    return line


def _cut(text: str, width: int, from_end: bool) -> str:
    if cell_len(text) <= width:
        return text
    while cell_len(text) > width - 1:
        text = text[:-1] if from_end else text[1:]
    return set_cell_size(f"{text}…" if from_end else f"…{text}", width)
