"""Pictures of a message. Their kind is read from their bytes, never from names or types."""

from __future__ import annotations

import binascii
import re
from base64 import b64decode
from collections.abc import Sequence
from typing import Final

from shared.errors import BadInput, ToolFailed
from shared.media.kinds import FileRejected, image_kind, image_size
from shared.media.reference import PREFIX, MediaRef, read_reference
from worker.agent.model.model import Image, image_mark

# Limit of one picture, decoded: every large provider takes that much.
IMAGE_LIMIT_BYTES: Final = 5 * 1024 * 1024
# Limit of one message.
MAX_IMAGES: Final = 8
# Limit of a picture in a file: a small file may claim a huge size, which costs memory.
FILE_PIXELS: Final = 50_000_000
_DATA_URL: Final = re.compile(r"data:(?P<type>[^,;]*)(?:;[^,;]*)*;base64,", re.ASCII)
_DECLARED: Final = re.compile(r"[a-z0-9.+-]{1,40}/[a-z0-9.+-]{1,60}")


def read_images(media: Sequence[str]) -> tuple[tuple[Image, ...], tuple[str, ...]]:
    """Return the pictures among the attachments (`data:…;base64,…` URLs of PNG, JPEG, GIF and WebP,
    at most MAX_IMAGES), and a note in brackets for each other one, also for a reference to a stored
    file, which `worker.turn.attachments` loads. Never raises."""
    if not media:
        return (), ()
    read = [_read_attachment(attachment) for attachment in media]
    images = [one for one in read if isinstance(one, Image)]
    notes = [one for one in read if isinstance(one, str)]
    if (beyond := len(images) - MAX_IMAGES) > 0:
        notes.append(f"[{beyond} more images were left out: at most {MAX_IMAGES} are taken of one message]")
    return tuple(images[:MAX_IMAGES]), tuple(notes)


def picture_in(path: str, data: bytes) -> Image:
    """Return a file of the workspace as a picture. Raises ToolFailed, `file refused: <reason>`, for
    another kind, one that is too big, or one that claims too many pixels."""
    kind = image_kind(data)
    if kind is None:
        raise _refuse_file(path, "it is none of PNG, JPEG, GIF and WebP")
    if len(data) > IMAGE_LIMIT_BYTES:
        raise _refuse_file(path, f"it has {len(data):,} bytes; at most {IMAGE_LIMIT_BYTES:,} can be shown")
    try:
        width, height = image_size(kind.suffix, data)
    except FileRejected as exc:
        raise _refuse_file(path, str(exc)) from None
    if width * height > FILE_PIXELS:
        raise _refuse_file(path, f"it has {width:,} x {height:,} pixels; at most {FILE_PIXELS:,} can be shown")
    return Image(kind.media_type, data)


def entry_text(content: str, images: Sequence[Image], notes: Sequence[str]) -> str:
    """Return the text of a message for its UserEntry, with marks of pictures, and the notes."""
    marks = "\n".join([*map(image_mark, images), *notes])
    return "\n\n".join(part for part in (content, marks) if part)


def file_note(ref: MediaRef, detail: str = "") -> str:
    """Return the note on a stored file, such as `[file: plan.pdf, PDF document, 12 kB; …]`."""
    size = f"{max(1, round(ref.size_bytes / 1000)):,} kB"
    name = "".join(sign for sign in ref.name if sign not in "[]")
    return f"[file: {name}, {ref.kind.about}, {size}{'; ' if detail else ''}{detail}]"


def _read_attachment(attachment: str) -> Image | str:
    """Return the picture, or a note that says why there is none."""
    if attachment.startswith(PREFIX):
        try:
            return file_note(read_reference(attachment))
        except BadInput:
            return "[an attachment could not be read]"
    url = _DATA_URL.match(attachment)
    declared = url["type"].lower() if url else ""
    declared = declared if _DECLARED.fullmatch(declared) else "unknown"
    unread = f"[an attachment of type {declared} could not be read]"
    if url is None:
        return unread
    if (len(attachment) - url.end()) // 4 * 3 - attachment[-2:].count("=") > IMAGE_LIMIT_BYTES:
        return (
            f"[an attachment of type {declared} was left out: it is larger than "
            f"{IMAGE_LIMIT_BYTES // (1024 * 1024)} MB]"
        )
    try:
        data = b64decode(attachment[url.end() :], validate=True)
    except (binascii.Error, ValueError):
        return unread
    kind = image_kind(data)
    return unread if kind is None else Image(kind.media_type, data)


def _refuse_file(path: str, why: str) -> ToolFailed:
    return ToolFailed(f"file refused: {why} ({path!r}). Show another picture, or make a smaller PNG of it")
