"""Kinds of stored files, recognised by their bytes: a name or a declared type proves nothing.
Decompression bombs and oversized pictures are detected from headers without opening the file."""

from __future__ import annotations

import struct
from typing import Final

import msgspec

from shared.encodings.decode import decode_file

PARTS: Final = 5000
UNPACKED_BYTES: Final = 256 * 1024 * 1024
RATIO: Final = 200
SMALL_BYTES: Final = 1024 * 1024

_END: Final = b"PK\x05\x06"
_END_BYTES: Final = 22
_COMMENT_BYTES: Final = 65_535
_ENTRY: Final = b"PK\x01\x02"
_ENTRY_BYTES: Final = 46
_ZIP64: Final = 0xFFFFFFFF
_JPEG_FRAMES: Final = frozenset({*range(0xC0, 0xD0)} - {0xC4, 0xC8, 0xCC})
_JPEG_BARE: Final = frozenset({0x01, *range(0xD0, 0xD9)})


class Kind(msgspec.Struct, frozen=True):
    """A kind of accepted file: the suffix it is kept under, media type, name for people."""

    suffix: str
    media_type: str
    about: str

    @property
    def is_image(self) -> bool:
        """True for pictures, which a model and a page can show."""
        return self.media_type.startswith("image/")

    @property
    def is_recording(self) -> bool:
        """True for sound, which a model of `[voice]` can write down."""
        return self.media_type.startswith("audio/")


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
    Kind("webm", "audio/webm", "recording"),
)
KINDS: Final = {kind.suffix: kind for kind in _KINDS}

_IMAGES: Final = {
    "png": (b"\x89PNG\r\n\x1a\n",),
    "jpg": (b"\xff\xd8\xff",),
    "gif": (b"GIF87a", b"GIF89a"),
}
_OTHERS: Final = {
    "pdf": (b"%PDF-",),
    "mp3": (b"ID3", b"\xff\xfb", b"\xff\xf3", b"\xff\xf2"),
    "ogg": (b"OggS",),
    "flac": (b"fLaC",),
}
_PARTS: Final = {b"word/document.xml": "docx", b"xl/workbook.xml": "xlsx", b"ppt/presentation.xml": "pptx"}
_OLD_OFFICE: Final = bytes.fromhex("d0cf11e0a1b11ae1")
_REFUSED: Final[dict[bytes | tuple[bytes, ...], str]] = {
    _OLD_OFFICE: "a document of an old Office format; save it as .docx, .xlsx or .pptx",
    b"\x1f\x8b": "a gzip archive; send the files themselves",
    b"BZh": "a bzip2 archive; send the files themselves",
    b"\xfd7zXZ\0": "an xz archive; send the files themselves",
    b"7z\xbc\xaf\x27\x1c": "a 7-zip archive; send the files themselves",
    b"Rar!": "a RAR archive; send the files themselves",
    (b"\x7fELF", b"MZ"): "a program",
    (b"BM", b"II*\0", b"MM\0*"): "a picture of a format that is not taken; send it as PNG or JPEG",
}
_REFUSED_HEADS: Final = tuple(head for heads in _REFUSED for head in (heads if isinstance(heads, tuple) else (heads,)))
ZIP: Final = b"PK\x03\x04"
_EBML: Final = b"\x1aE\xdf\xa3"


def kind_of(data: bytes, zip_names: frozenset[bytes]) -> Kind | None:
    """Return the kind of a file, if it is accepted. `zip_names` are the parts of a zip archive."""
    if data.startswith(ZIP):
        return next((KINDS[suffix] for part, suffix in _PARTS.items() if part in zip_names), None)
    # Some PDFs are ASCII, and some texts begin like a recording.
    if not data.startswith(b"%PDF-") and _is_text(data):
        return KINDS["txt"]
    # A container of several kinds, named at byte 8.
    if data.startswith(b"RIFF") and data[8:12] == b"WAVE":
        return KINDS["wav"]
    if data[4:8] == b"ftyp" and (data[8:11] == b"M4A" or _is_sound(data)):
        return KINDS["m4a"]
    # Browsers record sound as WebM. A video of the same container names its codec at the beginning.
    if data.startswith(_EBML) and b"webm" in data[:64] and b"V_" not in data[:4096]:
        return KINDS["webm"]
    found = image_kind(data) or _find_kind(data, _OTHERS)
    if data and found is None and not data.startswith(_REFUSED_HEADS) and decode_file(data):
        return KINDS["txt"]  # in another encoding than UTF-8
    return found


def image_kind(data: bytes) -> Kind | None:
    """Return the kind of a picture; None for everything else."""
    if data.startswith(b"RIFF") and data[8:12] == b"WEBP":
        return KINDS["webp"]
    return _find_kind(data, _IMAGES)


def why_not(data: bytes) -> str:
    """Explain why a file is not accepted, as far as its first bytes tell."""
    if not data:
        return "it is empty"
    if data.startswith(ZIP):
        return "it is a zip archive; send the files themselves"
    what = next((what for head, what in _REFUSED.items() if data.startswith(head)), "")
    return f"it is {what}" if what else "it is of a kind that is not taken here"


def _find_kind(data: bytes, heads: dict[str, tuple[bytes, ...]]) -> Kind | None:
    return next((KINDS[suffix] for suffix, head in heads.items() if data.startswith(head)), None)


def _is_sound(data: bytes) -> bool:
    """Tell whether an MP4 has sound and no picture, as Safari's voice notes: by the handlers of its tracks."""
    return b"hdlr\0\0\0\0\0\0\0\0soun" in data and b"hdlr\0\0\0\0\0\0\0\0vide" not in data


def _is_text(data: bytes) -> bool:
    if not data or b"\0" in data:
        return False
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


class FileRejected(ValueError):
    """A header is damaged or announces too much; the text completes "file refused: ..."."""


def image_size(suffix: str, data: bytes) -> tuple[int, int]:
    """Return width and height in pixels from the header of a picture. Raises FileRejected."""
    try:
        width, height = _SIZES[suffix](data)
    except (struct.error, IndexError):
        raise FileRejected("it is a damaged picture") from None
    if width <= 0 or height <= 0:
        raise FileRejected("it is a damaged picture")
    return width, height


def zip_parts(data: bytes) -> frozenset[bytes]:
    """Return the names in a zip archive, by the directory at its end. Raises FileRejected when it is
    damaged or protected, or unpacks to too much."""
    names: set[bytes] = set()
    total_bytes = 0
    too_much = f"it unpacks to more than {UNPACKED_BYTES // 1024 // 1024} MB"
    end = data.rfind(_END, max(0, len(data) - _END_BYTES - _COMMENT_BYTES))
    try:
        if end < 0:
            raise FileRejected("it is a damaged archive")
        parts, _, at = struct.unpack_from("<HII", data, end + 10)
        if parts > PARTS:
            raise FileRejected(f"it has {parts:,} parts; at most {PARTS:,} are allowed")
        for _ in range(parts):
            if data[at : at + 4] != _ENTRY:
                raise FileRejected("it is a damaged archive")
            [flags] = struct.unpack_from("<H", data, at + 8)
            packed, unpacked, name, extra, comment = struct.unpack_from("<IIHHH", data, at + 20)
            total_bytes += unpacked
            if _ZIP64 in (packed, unpacked):
                raise FileRejected(too_much)
            if flags & 1:
                raise FileRejected("it is protected by a password")
            if unpacked > SMALL_BYTES and unpacked > RATIO * max(1, packed):
                raise FileRejected(f"a part of it grows more than {RATIO} times when it is unpacked")
            if total_bytes > UNPACKED_BYTES:
                raise FileRejected(too_much)
            names.add(data[at + _ENTRY_BYTES : at + _ENTRY_BYTES + name])
            at += _ENTRY_BYTES + name + extra + comment
    except struct.error:
        raise FileRejected("it is a damaged archive") from None
    return frozenset(names)


def _png(data: bytes) -> tuple[int, int]:
    if data[12:16] != b"IHDR":
        raise FileRejected("it is a damaged picture")
    width, height = struct.unpack_from(">II", data, 16)
    return width, height


def _gif(data: bytes) -> tuple[int, int]:
    width, height = struct.unpack_from("<HH", data, 6)
    return width, height


def _jpeg(data: bytes) -> tuple[int, int]:
    at = 2
    while True:
        while data[at] == 0xFF and data[at + 1] == 0xFF:  # padding
            at += 1
        if data[at] != 0xFF:
            raise FileRejected("it is a damaged picture")
        marker = data[at + 1]
        if marker in _JPEG_BARE:
            at += 2
            continue
        [length] = struct.unpack_from(">H", data, at + 2)
        if marker in _JPEG_FRAMES:
            height, width = struct.unpack_from(">HH", data, at + 5)
            return width, height
        if marker in (0xD9, 0xDA) or length < 2:
            raise FileRejected("it is a damaged picture")
        at += 2 + length


def _webp(data: bytes) -> tuple[int, int]:
    match data[12:16]:
        case b"VP8X":
            return 1 + int.from_bytes(data[24:27], "little"), 1 + int.from_bytes(data[27:30], "little")
        case b"VP8L" if data[20] == 0x2F:
            [bits] = struct.unpack_from("<I", data, 21)
            return 1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF)
        case b"VP8 " if data[23:26] == b"\x9d\x01\x2a":
            width, height = struct.unpack_from("<HH", data, 26)
            return width & 0x3FFF, height & 0x3FFF
    raise FileRejected("it is a damaged picture")


_SIZES: Final = {"png": _png, "gif": _gif, "jpg": _jpeg, "webp": _webp}
