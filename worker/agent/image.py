"""Pictures that a person sends along: as a model takes them, and as history remembers them."""

from __future__ import annotations

from base64 import b64encode
from typing import Any

import msgspec


class Image(msgspec.Struct, frozen=True):
    """A picture. `media_type` is what its bytes are, such as `image/png`, not what somebody called
    them."""

    media_type: str
    data: bytes


def image_part(image: Image) -> dict[str, Any]:
    """A part of a user's message in OpenAI's form, with the bytes in a data URL."""
    url = f"data:{image.media_type};base64,{b64encode(image.data).decode('ascii')}"
    return {"type": "image_url", "image_url": {"url": url}}


def image_mark(image: Image) -> str:
    """What history keeps instead of the bytes: `[image: image/png, 12 kB]`."""
    return f"[image: {image.media_type}, {max(1, round(len(image.data) / 1000)):,} kB]"
