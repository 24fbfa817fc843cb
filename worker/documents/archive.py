"""Office files are zip archives: what one holds is looked at before anything is unpacked."""

from __future__ import annotations

import io
import zipfile
import zlib
from typing import Final

PARTS: Final = 5000
UNPACKED_BYTES: Final = 256 * 1024 * 1024
RATIO: Final = 200
SMALL_BYTES: Final = 1024 * 1024
HEAD_BYTES: Final = 64 * 1024


class Refused(Exception):
    """A file that is not read; the text is the reason, for people."""


def check_archive(data: bytes) -> None:
    """Look at what an archive says it holds; no more than that is ever unpacked of a part.

    Raises Refused with a reason when it is damaged, encrypted, has too many parts, unpacks to too
    much, holds a part that grows out of all proportion, or XML that could define things of its own.
    """
    try:
        archive = zipfile.ZipFile(io.BytesIO(data))
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError):
        raise Refused("it is damaged") from None
    listed = archive.infolist()
    if len(listed) > PARTS:
        raise Refused(f"it has {len(listed):,} parts; at most {PARTS:,} are allowed")
    total_bytes = sum(entry.file_size for entry in listed)
    if total_bytes > UNPACKED_BYTES:
        raise Refused(f"it unpacks to {total_bytes:,} bytes; at most {UNPACKED_BYTES:,} are allowed")
    if len({entry.filename for entry in listed}) < len(listed):
        raise Refused("it has two parts of one name")
    for entry in listed:
        if entry.flag_bits & 1:
            raise Refused("it is protected by a password")
        if entry.file_size > SMALL_BYTES and entry.file_size > RATIO * max(1, entry.compress_size):
            raise Refused(f"a part of it grows more than {RATIO} times when it is unpacked")
    for entry in listed:
        if entry.filename.endswith((".xml", ".rels")) and b"<!DOCTYPE" in _head(archive, entry):
            raise Refused("it has a document type declaration, as no Office program writes one")


def _head(archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> bytes:
    """The beginning of a part, in whatever encoding."""
    try:
        with archive.open(entry) as part:
            return part.read(HEAD_BYTES).replace(b"\0", b"")
    except (zipfile.BadZipFile, zlib.error, OSError, ValueError, NotImplementedError, EOFError):
        raise Refused("it is damaged") from None
