"""Document kinds, recognized by content alone, and the limits of reading one. The reader (parent)
and the child process both import this file, so both hold to these limits."""

from __future__ import annotations

import codecs
import io
import zipfile
import zlib
from typing import Final, Literal

from shared.encodings.decode import DecodedText, decode_file
from shared.media.kinds import PARTS, RATIO, SMALL_BYTES, UNPACKED_BYTES, image_kind

Document = Literal["pdf", "word", "sheet", "slides"]

KIND_NAMES: Final[dict[Document, str]] = {
    "pdf": "PDF document",
    "word": "Word document",
    "sheet": "Excel workbook",
    "slides": "PowerPoint presentation",
}

FILE_LIMIT_BYTES: Final = 16 * 1024 * 1024
TEXT_LIMIT_CHARS: Final = 1_000_000
MEMORY_BYTES: Final = 768 * 1024 * 1024
CPU_S: Final = 10
WALL_S: Final = 30
# Exit code of a child that refuses a file; the last line of its output is the reason.
REFUSED_EXIT_CODE: Final = 3
_HEAD_BYTES: Final = 64 * 1024
_PDF: Final = b"%PDF-"
_ZIP: Final = b"PK\x03\x04"
_OLD_OFFICE: Final = bytes.fromhex("d0cf11e0a1b11ae1")
_MAIN_PARTS: Final[dict[bytes, Document]] = {
    b"word/document.xml": "word",
    b"xl/workbook.xml": "sheet",
    b"ppt/presentation.xml": "slides",
}
_OTHER_PICTURES: Final = (b"GIF8", b"BM", b"II*\0", b"MM\0*")
_OTHERS: Final = {
    _OLD_OFFICE: "a document of an old Office format; save it as .docx, .xlsx or .pptx",
    _ZIP: "a zip archive",
    b"\x1f\x8b": "a gzip archive",
    b"\x7fELF": "a program",
    b"SQLite format 3\0": "a SQLite database",
    b"OggS": "an Ogg recording",
    b"ID3": "an MP3 recording",
}


class DocumentRefused(Exception):
    """The file is not read; the text is the reason, written for people."""


def decode_text(data: bytes) -> str | None:
    """Return a plain UTF-8 text; None for other bytes, a NUL, or a PDF (some PDFs are pure ASCII), and
    for a text with a mark at its beginning or escape sequences for other character sets."""
    if data.startswith((_PDF, codecs.BOM_UTF8)) or b"\0" in data or b"\x1b$" in data:
        return None
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return None


def decode_other_text(data: bytes) -> DecodedText | None:
    """Return a text in another encoding than plain UTF-8, as far as it can be recognised; None for
    documents, pictures and other binary files. Call it in a thread."""
    if is_picture(data) or data.startswith((_PDF, *_OTHERS)):
        return None
    return decode_file(data)


def detect_document(data: bytes) -> Document | None:
    """Return the kind of document that the bytes claim to be. Unpacks nothing."""
    if data.startswith(_PDF):
        return "pdf"
    if data.startswith(_ZIP):
        # Names of parts are not compressed in a zip file, so a search in the raw bytes finds them.
        return next((kind for part, kind in _MAIN_PARTS.items() if part in data), None)
    return None


def describe_file(data: bytes) -> str:
    """Describe any other file, as far as its first bytes allow."""
    return next((text for head, text in _OTHERS.items() if data.startswith(head)), "a binary file")


def is_picture(data: bytes) -> bool:
    """Return whether a file is a picture, also one of a kind that cannot be shown."""
    return image_kind(data) is not None or data.startswith(_OTHER_PICTURES)


def check_archive(data: bytes) -> None:
    """Check what an Office file (a zip archive) declares before a library unpacks it. Raises
    DocumentRefused with a reason for an archive that is damaged or encrypted, has too many parts,
    unpacks to too much, holds a part of an absurd compression ratio, or XML with a DOCTYPE."""
    try:
        archive = zipfile.ZipFile(io.BytesIO(data))
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError):
        raise DocumentRefused("it is damaged") from None
    parts = archive.infolist()
    if len(parts) > PARTS:
        raise DocumentRefused(f"it has {len(parts):,} parts; at most {PARTS:,} are allowed")
    # A part may lie about its size, but zipfile never unpacks more of it than it declares.
    total_bytes = sum(part.file_size for part in parts)
    if total_bytes > UNPACKED_BYTES:
        raise DocumentRefused(f"it unpacks to {total_bytes:,} bytes; at most {UNPACKED_BYTES:,} are allowed")
    if len({part.filename for part in parts}) < len(parts):
        raise DocumentRefused("it has two parts of one name")
    for part in parts:
        if part.flag_bits & 1:
            raise DocumentRefused("it is protected by a password")
        if part.file_size > SMALL_BYTES and part.file_size > RATIO * max(1, part.compress_size):
            raise DocumentRefused(f"a part of it grows more than {RATIO} times when it is unpacked")
    for part in parts:
        # A DOCTYPE can define entities that expand to gigabytes, or that name files of this machine.
        if part.filename.endswith((".xml", ".rels")) and b"<!DOCTYPE" in _read_head(archive, part):
            why = "it has a document type declaration, which Office programs never write"
            raise DocumentRefused(why)


def _read_head(archive: zipfile.ZipFile, part: zipfile.ZipInfo) -> bytes:
    """Return the first bytes of a part without NULs, so that UTF-16 reads like ASCII."""
    try:
        with archive.open(part) as file:
            return file.read(_HEAD_BYTES).replace(b"\0", b"")
    except (zipfile.BadZipFile, zlib.error, OSError, ValueError, NotImplementedError, EOFError):
        raise DocumentRefused("it is damaged") from None
