"""Errors over HTTP, as RFC 9457 has them."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus

import msgspec
from starlette.responses import Response


def problem(status: int, detail: str | None = None, headers: Mapping[str, str] | None = None) -> Response:
    """An error as problem JSON."""
    body = {"type": "about:blank", "title": HTTPStatus(status).phrase, "status": status}
    if detail:
        body["detail"] = detail
    return Response(msgspec.json.encode(body), status, headers, media_type="application/problem+json")
