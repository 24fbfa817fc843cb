"""The settings of the files that people send and get."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from msgspec import Meta, Struct


class MediaSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """Files that people send and get, below `dir`; a volume that gateways and workers share in a
    cluster. By default `media` under `data.dir`.

    One file has at most `file_mb`, a message `per_message` files, a session `session_mb` in all, a
    picture `megapixels`. A file is kept for `days`."""

    dir: Path = Path(".shoal/media")
    file_mb: Annotated[int, Meta(ge=1, le=15)] = 10
    per_message: Annotated[int, Meta(ge=1, le=8)] = 4
    session_mb: Annotated[int, Meta(ge=1, le=1024 * 1024)] = 256
    megapixels: Annotated[int, Meta(ge=1, le=500)] = 50
    days: Annotated[int, Meta(ge=1, le=3650)] = 30
