"""Files in a request, and where they are kept."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

import msgspec

from gateway.channels.web.api.errors import ApiError, bad_parameter
from shared.errors import BadInput
from shared.log import logger
from shared.media.disk import DISK_FULL, DiskFull
from shared.media.files import MediaTooBig
from shared.media.store import MediaStore

FILES_RETRY_S: Final = 5.0

log = logger("api")


class SentFile(msgspec.Struct, frozen=True):
    """A file in a request; `param` is its place there."""

    param: str
    name: str
    data: bytes


async def store_files(store: MediaStore, session: str, files: Sequence[SentFile], limit: int) -> tuple[str, ...]:
    """Store files; return references, the same for a repeated request. Raises ApiError."""
    if len(files) > limit:
        raise bad_parameter(
            files[0].param.partition("[")[0],
            f"the message has {len(files)} files; at most {limit} are taken",
            code="bad_media",
        )
    return tuple([await _store_file(store, session, file) for file in files])


async def _store_file(store: MediaStore, session: str, file: SentFile) -> str:
    try:
        return str(await asyncio.to_thread(store.put, session, file.data, file.name))
    except MediaTooBig as exc:
        raise ApiError(413, exc.message, code=exc.code, param=file.param) from None
    except BadInput as exc:
        raise bad_parameter(file.param, exc.message, code=exc.code) from None
    except DiskFull:
        raise ApiError(507, f"file refused: {DISK_FULL}", code="disk_full", param=file.param) from None
    except OSError as exc:
        log.error("media store unavailable", error=type(exc).__name__)
        message = "files cannot be kept just now; please try again"
        raise ApiError(503, message, code="unavailable", retry_after_s=FILES_RETRY_S) from None
