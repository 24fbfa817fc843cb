"""Text of PDF files. The library is imported late: see `worker.documents.child`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, BinaryIO, Final

from worker.documents import kinds

PAGES: Final = 1000
FIELDS: Final = 1000


def pdf_texts(file: BinaryIO) -> Iterator[str]:
    """Yield a header, the text of each page, and the fields of a form. A page without text says so:
    it is a picture, as of a scanner. Raises DocumentRefused for a locked file."""
    from pypdf import PdfReader

    reader = PdfReader(file)
    if reader.is_encrypted and not reader.decrypt(""):
        raise kinds.DocumentRefused("it is protected by a password")
    count = len(reader.pages)
    yield f"[PDF document, {count} page{'' if count == 1 else 's'}]"
    empty = 0
    for number, page in enumerate(reader.pages, 1):
        if number > PAGES:
            yield f"[{count - PAGES} more pages are not shown]"
            break
        text = page.extract_text().strip()
        empty += not text
        lines = [text] if text else [f"[this page has no text; {_why_empty(page)}]"]
        yield "\n".join([f"--- page {number} ---", *lines, *_notes(page)])
    yield from _fields(reader)
    if empty == count > 0:
        yield (
            "[nothing was read: no page has text, as in a scan. "
            "Ask for a version with text, or for pictures of the pages]"
        )


def _why_empty(page: Any) -> str:
    try:
        drawn = (one.get_object() for one in page["/Resources"]["/XObject"].get_object().values())
        picture = any(one.get("/Subtype") == "/Image" for one in drawn)
    except (KeyError, AttributeError, TypeError):
        picture = False
    return "it is a picture, which was not read" if picture else "it is empty, or drawn"


def _notes(page: Any) -> Iterator[str]:
    """Yield what people wrote onto a page: comments and notes."""
    try:
        marks = [mark.get_object() for mark in page.get("/Annots") or ()]
    except (AttributeError, TypeError):
        return
    for mark in marks:
        text = mark.get("/Contents")
        if isinstance(text, str) and text.strip() and mark.get("/Subtype") not in ("/Link", "/Widget"):
            yield f"[comment] {text.strip()}"


def _fields(reader: Any) -> Iterator[str]:
    fields = reader.get_fields() or {}
    filled = [(name, field.get("/V")) for name, field in fields.items() if field.get("/V") not in (None, "")]
    if filled:
        yield "--- form fields ---"
    yield from (f"{name}: {str(value).removeprefix('/')}" for name, value in filled[:FIELDS])
