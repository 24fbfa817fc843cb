"""Pages of other sites that may use the API from a browser."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp

EXPOSED: Final = ("X-Request-Id", "Retry-After", "X-Should-Retry", "Shoal-Ignored")
MAX_AGE_S: Final = 600


def allow_pages(app: ASGIApp, origins: Iterable[str]) -> ASGIApp:
    """Return `app` for programs and for pages of exactly these origins. A browser's question before
    a request is answered here: it has no token. Cookies are never asked for, since the API knows
    none."""
    allowed = [one.lower().rstrip("/") for one in origins]
    if not allowed:
        return app
    return CORSMiddleware(
        app,
        allow_origins=allowed,
        allow_methods=("GET", "POST", "DELETE"),
        # Clients of OpenAI's protocol send headers of their own, of which new ones come.
        allow_headers=("*",),
        allow_credentials=False,
        expose_headers=EXPOSED,
        max_age=MAX_AGE_S,
    )
