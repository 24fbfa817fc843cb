"""Small files of every kind that is taken, and small ones that claim to be huge."""

from __future__ import annotations

import io
import struct
import wave
import zipfile
import zlib

OGG = b"OggS\0\2" + b"\0" * 22 + b"\1\x13OpusHead\1\1"
"""The beginning of a voice note."""


def wav(seconds: float = 0.5) -> bytes:
    """Silence that a browser plays."""
    file = io.BytesIO()
    with wave.open(file, "wb") as out:
        out.setparams((1, 1, 8000, 0, "NONE", ""))
        out.writeframes(b"\x80" * int(8000 * seconds))
    return file.getvalue()


def png(width: int = 3, height: int = 2) -> bytes:
    """A picture whose header says this size."""
    return (
        b"\x89PNG\r\n\x1a\n"
        + _chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
        + _chunk(b"IDAT", zlib.compress((b"\0" + b"\xff\0\0" * 3) * 2))
        + _chunk(b"IEND", b"")
    )


def gif(width: int = 3, height: int = 2) -> bytes:
    return b"GIF89a" + struct.pack("<HH", width, height) + b"\x80\x00\x00" + b"\x00" * 6 + b";"


def jpeg(width: int = 3, height: int = 2) -> bytes:
    """A header with a comment and padding before the frame."""
    frame = struct.pack(">BBHBHHB", 0xFF, 0xC2, 11, 8, height, width, 1) + b"\x01\x11\x00"
    return b"\xff\xd8\xff\xe0\x00\x10JFIF\x00" + b"\x00" * 9 + b"\xff\xff\xfe\x00\x04hi" + frame + b"\xff\xd9"


def webp(width: int = 3, height: int = 2) -> bytes:
    canvas = (width - 1).to_bytes(3, "little") + (height - 1).to_bytes(3, "little")
    return b"RIFF\x1a\x00\x00\x00WEBPVP8X\x0a\x00\x00\x00" + b"\x00" * 4 + canvas


def webp_lossless(width: int = 3, height: int = 2) -> bytes:
    bits = (width - 1) | (height - 1) << 14
    return b"RIFF\x1a\x00\x00\x00WEBPVP8L\x05\x00\x00\x00\x2f" + struct.pack("<I", bits)


def webp_lossy(width: int = 3, height: int = 2) -> bytes:
    return b"RIFF\x1a\x00\x00\x00WEBPVP8 \x0a\x00\x00\x00\x00\x00\x00\x9d\x01\x2a" + struct.pack("<HH", width, height)


def archive(*parts: str, body: bytes = b"<x/>") -> bytes:
    """A zip archive."""
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as made:
        for part in parts:
            made.writestr(part, body)
    return data.getvalue()


PDF = b"%PDF-1.7\n1 0 obj\n<<>>\nendobj\ntrailer\n<<>>\n%%EOF\n"


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
