"""Text of PDF, Word, Excel and PowerPoint files. Runs in the child process only.

Each library is imported inside its function: by then the process has confined itself, so code that
runs at import is confined too, and a PDF never loads the Office libraries.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import BinaryIO, Final

from worker.documents.kinds import Document, DocumentRefused

PAGES: Final = 1000
ROWS: Final = 50_000
COLUMNS: Final = 256


def pdf_texts(file: BinaryIO) -> Iterator[str]:
    """Yield a header, then the text of each page. Raises DocumentRefused for a locked file."""
    from pypdf import PdfReader

    reader = PdfReader(file)
    if reader.is_encrypted and not reader.decrypt(""):
        raise DocumentRefused("it is protected by a password")
    count = len(reader.pages)
    yield f"[PDF document, {count} page{'' if count == 1 else 's'}]"
    for number, page in enumerate(reader.pages, 1):
        if number > PAGES:
            yield f"[{count - PAGES} more pages are not shown]"
            return
        yield f"--- page {number} ---\n{page.extract_text().strip()}"


def word_texts(file: BinaryIO) -> Iterator[str]:
    """Yield paragraphs and table rows in document order; headings are marked with `#`."""
    import docx
    from docx.table import Table

    yield "[Word document]"
    for block in docx.Document(file).iter_inner_content():
        if isinstance(block, Table):
            for row in block.rows:
                yield " | ".join(" ".join(cell.text.split()) for cell in row.cells)
        elif block.text.strip():
            style = block.style.name if block.style is not None else None
            level = (style or "").removeprefix("Heading ")
            yield f"{'#' * int(level)} {block.text}" if level.isdigit() and len(level) == 1 else block.text


def sheet_texts(file: BinaryIO) -> Iterator[str]:
    """Yield one line a row, cells separated by tabs: saved values, not formulas. Empty rows are
    left out."""
    import openpyxl  # type: ignore[import-untyped]

    book = openpyxl.load_workbook(file, read_only=True, data_only=True)
    yield f"[Excel workbook, {len(book.worksheets)} sheets]"
    left = ROWS
    for sheet in book.worksheets:
        yield f"--- sheet {sheet.title!r} ---"
        # A sheet may declare the largest size the format allows; this makes openpyxl ignore it.
        sheet.reset_dimensions()
        for row in sheet.iter_rows(max_col=COLUMNS, values_only=True):
            if (left := left - 1) < 0:
                yield f"[only {ROWS:,} rows are shown]"
                return
            line = "\t".join("" if value is None else " ".join(str(value).split()) for value in row).rstrip()
            if line:
                yield line


def slide_texts(file: BinaryIO) -> Iterator[str]:
    """Yield the texts, tables and speaker notes of each slide."""
    from pptx import Presentation

    slides = Presentation(file).slides
    yield f"[PowerPoint presentation, {len(slides)} slides]"
    for number, slide in enumerate(slides, 1):
        yield f"--- slide {number} ---"
        for shape in slide.shapes:
            if shape.has_text_frame and (text := shape.text_frame.text.strip()):
                yield text
            if shape.has_table:
                for row in shape.table.rows:
                    yield " | ".join(" ".join(cell.text.split()) for cell in row.cells)
        if slide.has_notes_slide and (notes := slide.notes_slide.notes_text_frame) is not None and notes.text.strip():
            yield f"Notes: {notes.text.strip()}"


TEXTS_OF: Final[dict[Document, Callable[[BinaryIO], Iterator[str]]]] = {
    "pdf": pdf_texts,
    "word": word_texts,
    "sheet": sheet_texts,
    "slides": slide_texts,
}
