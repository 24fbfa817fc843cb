"""Errors over HTTP, and what is left of refused bodies."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from http import HTTPStatus

import msgspec
from starlette.requests import Request
from starlette.responses import Response

_Headers = Mapping[str, str] | None


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
