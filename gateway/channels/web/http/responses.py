"""Errors over HTTP, and what is left of refused bodies."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from html import escape
from http import HTTPStatus

import msgspec
from starlette.requests import Request
from starlette.responses import Response

_Headers = Mapping[str, str] | None


class ProblemResponse(Response):
    """An error as problem JSON (RFC 9457)."""

    def __init__(self, status: int, detail: str | None, headers: _Headers) -> None:
        body = {"type": "about:blank", "title": HTTPStatus(status).phrase, "status": status}
        if detail:
            body["detail"] = detail
        super().__init__(msgspec.json.encode(body), status, headers, "application/problem+json")
        self.detail = detail
        self.given_headers = headers


def problem(status: int, detail: str | None = None, headers: _Headers = None) -> ProblemResponse:
    """Return an error as problem JSON (RFC 9457)."""
    return ProblemResponse(status, detail, headers)


def problem_for_reader(request: Request, error: ProblemResponse, styles: str) -> Response:
    """Return an error as a page where a person opened the address in a browser, else as it is.
    `styles` is the address of the style sheet."""
    if request.method != "GET" or "text/html" not in request.headers.get("accept", ""):
        return error
    phrase = HTTPStatus(error.status_code).phrase.capitalize()
    detail = error.detail or ("there is nothing at this address" if error.status_code == 404 else "")
    sentence = f"<p>{escape(detail[0].upper() + detail[1:])}.</p>" if detail else ""
    headers = {**(error.given_headers or {}), "Cache-Control": "no-store", "Vary": "Accept"}
    body = f'  <h1>{phrase}</h1>\n  {sentence}\n  <p><a href="/">Open your chats</a></p>'
    return Response(page_without_scripts(phrase, styles, body), error.status_code, headers, "text/html")


def page_without_scripts(title: str, styles: str, main: str) -> str:
    """Return a document that search engines leave out. `title` and `main` are HTML; `styles` is the
    address of the style sheet."""
    return f"""<!doctype html>
<html lang="en" class="shared">
<head>
  <meta charset="utf-8">
  <meta name="viewport" content="width=device-width, initial-scale=1">
  <meta name="robots" content="noindex, nofollow">
  <title>{title} · Shoal</title>
  <link rel="icon" href="/static/favicon.svg">
  <link rel="stylesheet" href="{styles}">
</head>
<body>
<main>
{main}
</main>
</body>
</html>
"""


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
