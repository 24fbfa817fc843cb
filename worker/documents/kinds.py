"""What a file is, by its content; its name says nothing."""

from __future__ import annotations

from typing import Final, Literal

Document = Literal["pdf", "word", "sheet", "slides"]

NAMES: Final[dict[Document, str]] = {
    "pdf": "PDF document",
    "word": "Word document",
    "sheet": "Excel workbook",
    "slides": "PowerPoint presentation",
}

_PDF: Final = b"%PDF-"
_ZIP: Final = b"PK\x03\x04"
_OLD_OFFICE: Final = bytes.fromhex("d0cf11e0a1b11ae1")
_MAIN_PARTS: Final[dict[bytes, Document]] = {
    b"word/document.xml": "word",
    b"xl/workbook.xml": "sheet",
    b"ppt/presentation.xml": "slides",
}
_PICTURES: Final = {
    b"\x89PNG\r\n\x1a\n": "image/png",
    b"\xff\xd8\xff": "image/jpeg",
    b"GIF8": "image/gif",
    b"BM": "image/bmp",
    b"II*\0": "image/tiff",
    b"MM\0*": "image/tiff",
}
_OTHERS: Final = {
    _OLD_OFFICE: "a document of an old Office format; save it as .docx, .xlsx or .pptx",
    _ZIP: "a zip archive",
    b"\x1f\x8b": "a gzip archive",
    b"\x7fELF": "a program",
    b"SQLite format 3\0": "a SQLite database",
    b"OggS": "an Ogg recording",
    b"ID3": "an MP3 recording",
}


def text_of(data: bytes) -> str | None:
    """The text that a file is, exactly; None when it is none: no UTF-8, with NUL in it, or a PDF
    (some are ASCII)."""
    if data.startswith(_PDF) or b"\0" in data:
        return None
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return None


def document_of(data: bytes) -> Document | None:
    """Which kind of document the bytes claim to be. Looks at names only and unpacks nothing."""
    if data.startswith(_PDF):
        return "pdf"
    if data.startswith(_ZIP):
        return next((kind for part, kind in _MAIN_PARTS.items() if part in data), None)
    return None


def description(data: bytes) -> str:
    """What else a file is, as far as its first bytes say."""
    return next((what for head, what in _OTHERS.items() if data.startswith(head)), "a binary file")


def picture_of(data: bytes) -> str | None:
    """The media type of a picture; None for everything else."""
    if data.startswith(b"RIFF") and data[8:12] == b"WEBP":
        return "image/webp"
    return next((kind for head, kind in _PICTURES.items() if data.startswith(head)), None)
