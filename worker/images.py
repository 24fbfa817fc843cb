"""Reading the pictures of a message. What one is, its bytes say; a name or a declared type says nothing."""

from __future__ import annotations

import binascii
import re
from base64 import b64decode
from collections.abc import Sequence
from typing import Final

from worker.agent.image import Image, image_mark

IMAGE_LIMIT_BYTES: Final = 5 * 1024 * 1024
"""Of one picture, unpacked: the most that every large provider takes."""

MAX_IMAGES: Final = 8
"""Of one message."""

_DATA_URL: Final = re.compile(r"data:(?P<type>[^,;]*)(?:;[^,;]*)*;base64,", re.ASCII)
_DECLARED: Final = re.compile(r"[a-z0-9.+-]{1,40}/[a-z0-9.+-]{1,60}")


def read_images(media: Sequence[str]) -> tuple[tuple[Image, ...], tuple[str, ...]]:
    """The pictures among the attachments, and a note in brackets for each attachment that is left out.

    An attachment is a `data:…;base64,…` URL. Taken are PNG, JPEG, GIF and WebP, MAX_IMAGES of them. Never raises.
    """
    images: list[Image] = []
    notes: list[str] = []
    beyond = 0
    for attachment in media:
        image = _read(attachment)
        if isinstance(image, str):
            notes.append(image)
        elif len(images) < MAX_IMAGES:
            images.append(image)
        else:
            beyond += 1
    if beyond:
        notes.append(f"[{beyond} more images were left out: at most {MAX_IMAGES} are taken of one message]")
    return tuple(images), tuple(notes)


def entry_text(content: str, images: Sequence[Image], notes: Sequence[str]) -> str:
    """The text of a message for its UserEntry: what was written, then a mark for each picture, then the notes."""
    marks = "\n".join([*map(image_mark, images), *notes])
    return "\n\n".join(part for part in (content, marks) if part)


def _read(attachment: str) -> Image | str:
    """The picture, or the note why it is none."""
    url = _DATA_URL.match(attachment)
    declared = url["type"].lower() if url else ""
    declared = declared if _DECLARED.fullmatch(declared) else "unknown"
    unread = f"[an attachment of type {declared} could not be read]"
    if url is None:
        return unread
    if (len(attachment) - url.end()) // 4 * 3 - attachment[-2:].count("=") > IMAGE_LIMIT_BYTES:
        limit_mb = IMAGE_LIMIT_BYTES // (1024 * 1024)
        return f"[an attachment of type {declared} was left out: it is larger than {limit_mb} MB]"
    try:
        data = b64decode(attachment[url.end() :], validate=True)
    except (binascii.Error, ValueError):
        return unread
    media_type = _media_type(data)
    return unread if media_type is None else Image(media_type, data)


def _media_type(data: bytes) -> str | None:
    if data.startswith(b"\x89PNG\r\n\x1a\n"):
        return "image/png"
    if data.startswith(b"\xff\xd8\xff"):
        return "image/jpeg"
    if data.startswith((b"GIF87a", b"GIF89a")):
        return "image/gif"
    if data.startswith(b"RIFF") and data[8:12] == b"WEBP":
        return "image/webp"
    return None
