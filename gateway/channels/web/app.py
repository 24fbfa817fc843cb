"""The HTTP side of the web channel: the page, the socket's handshake, headers and errors."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus
from typing import Final

from starlette.applications import Starlette
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route, WebSocketRoute
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from starlette.websockets import WebSocket

from gateway.channels.web.auth import origin_allowed
from gateway.channels.web.media import MediaDoor
from gateway.channels.web.pages import INDEX, Page, answer
from gateway.channels.web.problems import problem

HEADERS: Final = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; connect-src 'self'; "
        "font-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}

Serve = Callable[[WebSocket], Awaitable[None]]


def make_app(
    pages: Mapping[str, Page],
    serve: Serve,
    media: MediaDoor,
    *,
    allowed_origins: tuple[str, ...],
    draining: Callable[[], bool],
) -> ASGIApp:
    """`GET /`, `/static/*`, files below `/media` and the socket `/ws`; everything else is a problem (RFC 9457)."""

    async def page(request: Request) -> Response:
        found = pages.get(request.path_params.get("name", INDEX))
        if found is None:
            raise HTTPException(404)
        return answer(found, request)

    async def socket(websocket: WebSocket) -> None:
        headers = websocket.headers
        if not origin_allowed(headers.getlist("origin"), headers.get("host", ""), allowed_origins):
            detail = "pages of this origin may not open a socket here; web.allowed_origins names those that may"
            await websocket.send_denial_response(problem(403, detail))
        elif draining():
            await websocket.send_denial_response(problem(503, "this gateway is closing", {"Retry-After": "1"}))
        else:
            await serve(websocket)

    return StrictHeaders(
        Starlette(
            routes=[
                Route("/", page),
                Route("/static/{name:path}", page),
                Route("/media/{chat}", media.upload, methods=["POST"]),
                Route("/media/{chat}/{file}", media.download, methods=["GET"]),
                WebSocketRoute("/ws", socket),
            ],
            exception_handlers={HTTPException: _refused, Exception: _crashed},
        )
    )


def _refused(request: Request, exc: Exception) -> Response:
    assert isinstance(exc, HTTPException)
    detail = None if exc.detail == HTTPStatus(exc.status_code).phrase else exc.detail
    return problem(exc.status_code, detail, exc.headers)


def _crashed(request: Request, exc: Exception) -> Response:
    return problem(500)


class StrictHeaders:
    """Puts the headers that keep a page from being more than it is on every answer, errors included."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def strict(message: Message) -> None:
            if message["type"] in ("http.response.start", "websocket.http.response.start"):
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)  # a file that somebody sent has a stricter policy of its own
            await send(message)

        await self._app(scope, receive, strict)
