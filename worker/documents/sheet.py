"""The cells of an Excel workbook."""

from __future__ import annotations

from collections.abc import Iterator
from typing import BinaryIO, Final

import openpyxl  # type: ignore[import-untyped]

ROWS: Final = 50_000
COLUMNS: Final = 256


def texts(file: BinaryIO) -> Iterator[str]:
    """Sheet after sheet, a row a line, cells apart by tabs; values as they were saved, not
    formulas. Rows without anything are left out."""
    book = openpyxl.load_workbook(file, read_only=True, data_only=True)
    yield f"[Excel workbook, {len(book.worksheets)} sheets]"
    left = ROWS
    for sheet in book.worksheets:
        yield f"--- sheet {sheet.title!r} ---"
        sheet.reset_dimensions()  # what it claims may be the largest sheet there can be
        for row in sheet.iter_rows(max_col=COLUMNS, values_only=True):
            if (left := left - 1) < 0:
                yield f"[only {ROWS:,} rows are shown]"
                return
            line = "\t".join("" if value is None else " ".join(str(value).split()) for value in row).rstrip()
            if line:
                yield line
