"""Decompression bombs and oversized pictures, detected from headers without opening the file."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final

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


class FileRejected(ValueError):
    """A file whose header is damaged or announces too much; the text completes "file refused:
    ..."."""


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
    """Return the names in a zip archive. Raises FileRejected when it is damaged or protected, or
    unpacks to too much."""
    names: set[bytes] = set()
    total_bytes = 0
    for name, packed, unpacked, flags in _entries(data):
        names.add(name)
        total_bytes += unpacked
        if flags & 1:
            raise FileRejected("it is protected by a password")
        if unpacked > SMALL_BYTES and unpacked > RATIO * max(1, packed):
            raise FileRejected(f"a part of it grows more than {RATIO} times when it is unpacked")
        if total_bytes > UNPACKED_BYTES:
            raise FileRejected(f"it unpacks to more than {UNPACKED_BYTES // 1024 // 1024} MB")
    return frozenset(names)


def _entries(data: bytes) -> Iterator[tuple[bytes, int, int, int]]:
    """Yield name, packed and unpacked size, and flags of each part, from the directory at the
    end of the archive."""
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
            if _ZIP64 in (packed, unpacked):
                raise FileRejected(f"it unpacks to more than {UNPACKED_BYTES // 1024 // 1024} MB")
            yield data[at + _ENTRY_BYTES : at + _ENTRY_BYTES + name], packed, unpacked, flags
            at += _ENTRY_BYTES + name + extra + comment
    except struct.error:
        raise FileRejected("it is a damaged archive") from None


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
