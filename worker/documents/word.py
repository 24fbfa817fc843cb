"""The text of a Word document."""

from __future__ import annotations

from collections.abc import Iterator
from typing import BinaryIO

import docx
from docx.table import Table


def texts(file: BinaryIO) -> Iterator[str]:
    """Paragraphs and tables in the order in which they stand; headings marked with `#`."""
    yield "[Word document]"
    for block in docx.Document(file).iter_inner_content():
        if isinstance(block, Table):
            for row in block.rows:
                yield " | ".join(" ".join(cell.text.split()) for cell in row.cells)
        elif block.text.strip():
            style = block.style.name if block.style is not None else None
            level = (style or "").removeprefix("Heading ")
            yield f"{'#' * int(level)} {block.text}" if level.isdigit() and len(level) == 1 else block.text
