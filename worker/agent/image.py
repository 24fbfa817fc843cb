"""Pictures that a person sends along: their form in a model's message, and in history."""

from __future__ import annotations

from base64 import b64encode
from typing import Any

import msgspec


class Image(msgspec.Struct, frozen=True):
    """A picture. `media_type` describes its bytes, such as `image/png`, whatever its name
    claims."""

    media_type: str
    data: bytes


def image_part(image: Image) -> dict[str, Any]:
    """Return a part of a user's message in OpenAI's form, with the bytes in a data URL."""
    url = f"data:{image.media_type};base64,{b64encode(image.data).decode('ascii')}"
    return {"type": "image_url", "image_url": {"url": url}}


def image_mark(image: Image) -> str:
    """Return the text that history keeps instead of the bytes: `[image: image/png, 12 kB]`."""
    return f"[image: {image.media_type}, {max(1, round(len(image.data) / 1000)):,} kB]"
