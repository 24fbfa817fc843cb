"""Options and output that every command shares."""

from __future__ import annotations

import json
import sys
import unicodedata
from collections.abc import Sequence
from typing import Final

import click

from shared.terminal_text import clean_line

as_json: Final = click.option("--json", "as_json", is_flag=True, help="Print a JSON object.")
show_chats: Final = click.option("--show-chats", is_flag=True, help="Show chat ids instead of hashes of them.")


def print_json(value: object) -> None:
    """Print a value as JSON; a command with `--json` writes nothing else to standard output."""
    click.echo(json.dumps(value, indent=2))


def table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Columns as wide as their widest cell, two spaces between them. On a terminal as wide as that:
    long cells are cut, and the header is dim."""
    if sys.stdout.isatty():
        from console.grid import fitted_table  # rich takes its time; a pipe does without it

        return fitted_table(header, rows)
    cells = [[clean_line(str(cell)) for cell in row] for row in (header, *rows)]
    widths = [max(_cell_width(row[at]) for row in cells) for at in range(len(header))]
    lines = (
        "  ".join(cell + " " * (width - _cell_width(cell)) for cell, width in zip(row, widths, strict=True))
        for row in cells
    )
    return "\n".join(line.rstrip() for line in lines)


def _cell_width(text: str) -> int:
    """Return the number of terminal cells that a text takes."""
    return sum(2 if unicodedata.east_asian_width(char) in "WF" else not unicodedata.combining(char) for char in text)
