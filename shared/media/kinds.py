"""Kinds of stored files, recognised by their bytes; a name or a declared type proves nothing."""

from __future__ import annotations

from typing import Final

import msgspec


class Kind(msgspec.Struct, frozen=True):
    """A kind of file that is accepted: the suffix it is kept under, its media type, and its name
    for people."""

    suffix: str
    media_type: str
    about: str

    @property
    def is_image(self) -> bool:
        """True for pictures, which a model and a page can show."""
        return self.media_type.startswith("image/")


_KINDS: Final = (
    Kind("png", "image/png", "picture"),
    Kind("jpg", "image/jpeg", "picture"),
    Kind("gif", "image/gif", "picture"),
    Kind("webp", "image/webp", "picture"),
    Kind("pdf", "application/pdf", "PDF document"),
    Kind("docx", "application/vnd.openxmlformats-officedocument.wordprocessingml.document", "Word document"),
    Kind("xlsx", "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet", "Excel workbook"),
    Kind("pptx", "application/vnd.openxmlformats-officedocument.presentationml.presentation", "presentation"),
    Kind("txt", "text/plain", "text"),
    Kind("mp3", "audio/mpeg", "recording"),
    Kind("ogg", "audio/ogg", "recording"),
    Kind("wav", "audio/wav", "recording"),
    Kind("flac", "audio/flac", "recording"),
    Kind("m4a", "audio/mp4", "recording"),
)
KINDS: Final = {kind.suffix: kind for kind in _KINDS}

_HEADS: Final = {
    b"\x89PNG\r\n\x1a\n": "png",
    b"\xff\xd8\xff": "jpg",
    b"GIF87a": "gif",
    b"GIF89a": "gif",
    b"%PDF-": "pdf",
    b"ID3": "mp3",
    b"\xff\xfb": "mp3",
    b"\xff\xf3": "mp3",
    b"\xff\xf2": "mp3",
    b"OggS": "ogg",
    b"fLaC": "flac",
}
_PARTS: Final = {b"word/document.xml": "docx", b"xl/workbook.xml": "xlsx", b"ppt/presentation.xml": "pptx"}
_REFUSED: Final = {
    bytes.fromhex("d0cf11e0a1b11ae1"): "a document of an old Office format; save it as .docx, .xlsx or .pptx",
    b"\x1f\x8b": "a gzip archive; send the files themselves",
    b"BZh": "a bzip2 archive; send the files themselves",
    b"\xfd7zXZ\0": "an xz archive; send the files themselves",
    b"7z\xbc\xaf\x27\x1c": "a 7-zip archive; send the files themselves",
    b"Rar!": "a RAR archive; send the files themselves",
    b"\x7fELF": "a program",
    b"MZ": "a program",
    b"BM": "a picture of a format that is not taken; send it as PNG or JPEG",
    b"II*\0": "a picture of a format that is not taken; send it as PNG or JPEG",
    b"MM\0*": "a picture of a format that is not taken; send it as PNG or JPEG",
}
ZIP: Final = b"PK\x03\x04"


def kind_of(data: bytes, zip_names: frozenset[bytes]) -> Kind | None:
    """Return the kind of a file; None for one that is not accepted. `zip_names` are the parts of
    a zip archive."""
    if data.startswith(ZIP):
        return next((KINDS[suffix] for part, suffix in _PARTS.items() if part in zip_names), None)
    if not data.startswith(b"%PDF-") and _is_text(data):  # some PDFs are ASCII, and some texts begin like a recording
        return KINDS["txt"]
    # A container of several kinds, named at byte 8.
    if data.startswith(b"RIFF"):
        return {b"WEBP": KINDS["webp"], b"WAVE": KINDS["wav"]}.get(data[8:12])
    if data[4:8] == b"ftyp" and data[8:11] == b"M4A":
        return KINDS["m4a"]
    return next((KINDS[suffix] for head, suffix in _HEADS.items() if data.startswith(head)), None)


def why_not(data: bytes) -> str:
    """Explain why a file is not accepted, as far as its first bytes tell."""
    if not data:
        return "it is empty"
    if data.startswith(ZIP):
        return "it is a zip archive; send the files themselves"
    what = next((what for head, what in _REFUSED.items() if data.startswith(head)), "")
    return f"it is {what}" if what else "it is of a kind that is not taken here"


def _is_text(data: bytes) -> bool:
    if not data or b"\0" in data:
        return False
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True
