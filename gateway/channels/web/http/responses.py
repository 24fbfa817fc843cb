"""Static files of the page, errors over HTTP, and what is left of refused bodies."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import mimetypes
from collections.abc import AsyncIterator, Mapping
from http import HTTPStatus
from pathlib import Path
from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

FOLDER: Final = Path(__file__).parents[1] / "static"
INDEX: Final = "index.html"

_Headers = Mapping[str, str] | None
_TYPES: Final = {".js": "text/javascript", ".mjs": "text/javascript", ".woff2": "font/woff2"}


class StaticFile(msgspec.Struct, frozen=True):
    """A file as it is sent."""

    body: bytes
    media_type: str
    etag: str


def read_static_files(folder: Path = FOLDER) -> dict[str, StaticFile]:
    """Read every file under `folder`, by its relative path. They are small and stay in memory."""
    found = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file() and not path.name.startswith("."):
            body, (guessed, _) = path.read_bytes(), mimetypes.guess_type(path.name)
            kind = _TYPES.get(path.suffix) or guessed or "application/octet-stream"
            etag = f'"{hashlib.sha256(body).hexdigest()[:20]}"'
            found[path.relative_to(folder).as_posix()] = StaticFile(body, kind, etag)
    return found


def file_response(page: StaticFile, request: Request) -> Response:
    """Return the file, or 304. Browsers ask each time: files of two releases never mix."""
    headers = {"ETag": page.etag, "Cache-Control": "no-cache"}
    known = request.headers.get("if-none-match", "")
    if {"*", page.etag} & {tag.strip().removeprefix("W/") for tag in known.split(",")}:
        return Response(status_code=304, headers=headers)
    return Response(page.body, media_type=page.media_type, headers=headers)


def problem(status: int, detail: str | None = None, headers: _Headers = None) -> Response:
    """Return an error as problem JSON (RFC 9457)."""
    body = {"type": "about:blank", "title": HTTPStatus(status).phrase, "status": status}
    if detail:
        body["detail"] = detail
    return Response(msgspec.json.encode(body), status, headers, "application/problem+json")


def content_length(request: Request) -> int | None:
    """Return the announced size of a body in bytes."""
    header = request.headers.get("content-length", "")
    return int(header) if header.isascii() and header.isdigit() else None


async def read_rest(pieces: AsyncIterator[bytes], limit_bytes: int, within_s: float) -> None:
    """Read on for a while after a refusal: a connection closed with unread data is reset, and its
    client, which may read only after it has sent everything, never sees the response."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(within_s):
            async for piece in pieces:
                limit_bytes -= len(piece)
                if limit_bytes < 0:
                    return
