"""Settings of chat platforms: `[hooks]` in, `[delivery]` out, and `[media]`, files both ways."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from msgspec import Meta, Struct


class HooksSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """Address of the webhooks of all channels of a gateway, `/hooks/<channel>`.

    A call may bring `body_kb` and is answered within `answer_s`; at most `calls` run at once."""

    host: Annotated[str, Meta(min_length=1)] = "127.0.0.1"
    port: Annotated[int, Meta(ge=0, le=65535)] = 8090
    body_kb: Annotated[int, Meta(ge=16, le=64 * 1024)] = 4096
    answer_s: Annotated[float, Meta(gt=0, le=300)] = 10.0
    calls: Annotated[int, Meta(ge=1, le=100_000)] = 256


class DeliverySettings(Struct, frozen=True, forbid_unknown_fields=True):
    """Delivery of replies to chat platforms. One gateway serves at most `chats` of a channel at
    once. A call of a platform's API may take `call_s`; after that its outcome is unknown.
    `progress` shows what the agent is doing until its first words arrive."""

    chats: Annotated[int, Meta(ge=1, le=10_000)] = 200
    call_s: Annotated[float, Meta(gt=0, le=300)] = 20.0
    progress: bool = True


class MediaSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """Files that people send and get, below `dir`; a volume that gateways and workers share in a
    cluster. By default `media` under `data.dir`.

    Limits: `file_mb` for one file, `per_message` files in a message, `session_mb` for a session,
    `megapixels` for a picture. A file is kept for `days`."""

    dir: Path = Path(".shoal/media")
    file_mb: Annotated[int, Meta(ge=1, le=15)] = 10
    per_message: Annotated[int, Meta(ge=1, le=8)] = 4
    session_mb: Annotated[int, Meta(ge=1, le=1024 * 1024)] = 256
    megapixels: Annotated[int, Meta(ge=1, le=500)] = 50
    days: Annotated[int, Meta(ge=1, le=3650)] = 30
