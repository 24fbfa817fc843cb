"""The text of a PDF."""

from __future__ import annotations

from collections.abc import Iterator
from typing import BinaryIO, Final

from pypdf import PdfReader

from worker.documents.archive import Refused

PAGES: Final = 1000


def texts(file: BinaryIO) -> Iterator[str]:
    """Page after page. Raises Refused for a locked one."""
    reader = PdfReader(file)
    if reader.is_encrypted and not reader.decrypt(""):
        raise Refused("it is protected by a password")
    count = len(reader.pages)
    yield f"[PDF document, {count} page{'' if count == 1 else 's'}]"
    for number, page in enumerate(reader.pages, 1):
        if number > PAGES:
            yield f"[{count - PAGES} more pages are not shown]"
            return
        yield f"--- page {number} ---\n{page.extract_text().strip()}"
