"""The files of a request, put where its session can have them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from gateway.channels.web.api.errors import ApiError, bad_parameter
from gateway.channels.web.api.messages import SentFile
from shared.errors import BadInput
from shared.log import logger
from shared.media.store import MediaStore, MediaTooBig

RETRY_S = 5.0

log = logger("api")


async def store_files(store: MediaStore, session: str, files: Sequence[SentFile], *, limit: int) -> tuple[str, ...]:
    """The references of the files, kept for a session; the same again are the same. Raises
    ApiError."""
    if len(files) > limit:
        raise bad_parameter(
            "messages", f"the message has {len(files)} files; at most {limit} are taken", code="bad_media"
        )
    return tuple([await _store_file(store, session, file) for file in files])


async def _store_file(store: MediaStore, session: str, file: SentFile) -> str:
    try:
        return str(await asyncio.to_thread(store.put, session, file.data, file.name))
    except MediaTooBig as exc:
        raise ApiError(413, exc.message, code=exc.code, param=file.param) from None
    except BadInput as exc:
        raise bad_parameter(file.param, exc.message, code=exc.code) from None
    except OSError as exc:
        log.error("files away", error=type(exc).__name__)
        message = "files cannot be kept just now; please try again"
        raise ApiError(503, message, code="unavailable", retry_after_s=RETRY_S) from None
