"""The HTTP side of the web channel: the page, the socket's handshake, headers and errors."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from http import HTTPStatus
from typing import Final

from starlette.applications import Starlette
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route, WebSocketRoute
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from starlette.websockets import WebSocket

from gateway.channels.web.api.cors import allow_pages
from gateway.channels.web.api.errors import AISDK_PREFIX, draining_response, http_error_response
from gateway.channels.web.http.auth import origin_allowed
from gateway.channels.web.http.export import ExportRouter
from gateway.channels.web.http.first_run import FirstRun
from gateway.channels.web.http.media import MediaRouter
from gateway.channels.web.http.responses import problem, problem_for_reader
from gateway.channels.web.http.static_files import INDEX, StaticFiles
from shared.clock import SYSTEM_CLOCK
from shared.metrics import API_SECONDS

HEADERS: Final = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; media-src blob:; "
        "connect-src 'self'; font-src 'self'; manifest-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=(self), payment=(), usb=()",
    # Links of strangers in replies: a browser would look up their hosts before anybody clicks.
    "X-DNS-Prefetch-Control": "off",
}

API_PREFIX: Final = "/v1/"
MCP_PATH: Final = "/mcp"
AGUI_PATH: Final = "/agui"

Serve = Callable[[WebSocket], Awaitable[None]]


def make_app(
    files: StaticFiles,
    serve: Serve,
    media: MediaRouter,
    *,
    export: ExportRouter | None = None,
    panels: Sequence[BaseRoute] = (),
    first_run: FirstRun | None = None,
    api: Sequence[BaseRoute] = (),
    allowed_origins: tuple[str, ...],
    draining: Callable[[], bool],
) -> ASGIApp:
    """Return the app: `GET /`, `/c/*`, `/settings`, `/static/*`, files below `/media`, `GET
    /export/*`, `panels` of a chat, `POST /first-run`, the `api` below `/v1` and `/aisdk`, at
    `/mcp` and `/agui`, and the socket `/ws`. Errors are problem JSON (RFC 9457), a page for a
    person who opens a wrong address, and errors in OpenAI's form from the API; every response
    has security headers."""
    styles = files.address("style.css")

    async def page(request: Request) -> Response:
        found = files.response(request.path_params.get("name", INDEX), request)
        if found is None:
            raise HTTPException(404)
        return found

    def http_error(request: Request, exc: Exception) -> Response:
        assert isinstance(exc, HTTPException)
        if is_api(path := request.url.path):
            return http_error_response(exc.status_code, request.method, path, dict(exc.headers or {}))
        detail = None if exc.detail == HTTPStatus(exc.status_code).phrase else exc.detail
        return problem_for_reader(request, problem(exc.status_code, detail, exc.headers), styles)

    async def socket(websocket: WebSocket) -> None:
        if not origin_allowed(websocket.headers, allowed_origins):
            detail = "pages of this origin may not open a socket here; web.allowed_origins names those that may"
            await websocket.send_denial_response(problem(403, detail))
        elif draining():
            await websocket.send_denial_response(_draining_response())
        else:
            await serve(websocket)

    routed: ASGIApp = Starlette(
        routes=[
            Route("/", page),
            Route("/c/{chat}", page),
            Route("/settings", page),
            Route("/static/{name:path}", page),
            *([Route("/export/{chat}", export.export, methods=["GET"])] if export else []),
            *panels,
            Route("/media/{chat}", media.upload, methods=["POST"]),
            Route("/media/{chat}/{file}", media.download, methods=["GET"]),
            *([Route("/first-run", first_run.choose, methods=["POST"])] if first_run else []),
            *api,
            WebSocketRoute("/ws", socket),
        ],
        exception_handlers={HTTPException: http_error, Exception: _crash_response},
    )

    api_routed = allow_pages(routed, allowed_origins)

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        began, status = SYSTEM_CLOCK.monotonic(), 500  # what the server answers when the app fails

        async def strict(message: Message) -> None:
            nonlocal status
            if message["type"] in ("http.response.start", "websocket.http.response.start"):
                status = message["status"]
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)  # an uploaded file has a stricter policy
            await send(message)

        of_api = scope["type"] == "http" and is_api(scope["path"])
        inner = api_routed if of_api else routed
        # Clients go to another gateway. The route of the socket refuses handshakes itself, after it
        # has checked the origin.
        if scope["type"] == "http" and draining():
            inner = allow_pages(draining_response(scope["path"]), allowed_origins) if of_api else _draining_response()
        try:
            await inner(scope, receive, strict)
        finally:
            if of_api:
                API_SECONDS.labels(str(status)).observe(SYSTEM_CLOCK.monotonic() - began)

    return app


def is_api(path: str) -> bool:
    """Return whether programs ask for this path, rather than the page."""
    return path.startswith((API_PREFIX, AISDK_PREFIX)) or path in (MCP_PATH, AGUI_PATH)


def _crash_response(request: Request, exc: Exception) -> Response:
    path = request.url.path
    return http_error_response(500, request.method, path) if is_api(path) else problem(500)


def _draining_response() -> Response:
    return problem(503, "this gateway is closing", {"Retry-After": "1", "Connection": "close"})
