from __future__ import annotations

import json
from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Message
from starlette.websockets import WebSocket

from gateway.channels.web.http.app import HEADERS, make_app
from gateway.channels.web.http.auth import Principals
from gateway.channels.web.http.media import MediaRouter
from gateway.channels.web.http.static_files import StaticFiles
from shared.media.store import MediaStore
from shared.settings import MediaSettings


class BrokenPages(StaticFiles):
    """Pages that cannot be read."""

    def response(self, name: str, request: Request) -> Response | None:
        raise KeyError("a bug")


async def serve(websocket: WebSocket) -> None:
    raise AssertionError("not reached")


async def ask(scope: dict[str, Any], *, draining: bool = False) -> list[Message]:
    """What the app sends for one request; a crash of it is raised after its answer."""
    sent: list[Message] = []

    async def receive() -> Message:
        return {"type": "websocket.connect" if scope["type"] == "websocket" else "http.request"}

    async def send(message: Message) -> None:
        sent.append(message)

    media = MediaRouter(MediaStore(MediaSettings()), Principals({}))
    app = make_app(BrokenPages(), serve, media, allowed_origins=(), draining=lambda: draining)
    base = {
        "path": "/",
        "method": "GET",
        "headers": [],
        "query_string": b"",
        "extensions": {"websocket.http.response": {}},
    }
    try:
        await app({**base, **scope}, receive, send)
    except KeyError:
        sent.append({"type": "crashed"})
    return sent


def assert_problem(start: Message, body: Message, status: int) -> None:
    headers = {name.decode(): value.decode() for name, value in start["headers"]}
    assert start["status"] == status
    assert headers["content-type"] == "application/problem+json"
    assert json.loads(body["body"])["status"] == status
    for name, value in HEADERS.items():
        assert headers[name.lower()] == value


async def test_a_bug_is_answered_as_a_problem_without_details_and_goes_on_up() -> None:
    """The person sees 500, the log sees the traceback."""
    start, body, crashed = await ask({"type": "http"})
    assert_problem(start, body, 500)
    assert b"bug" not in body["body"]
    assert crashed["type"] == "crashed"


async def test_a_closing_gateway_takes_no_new_socket() -> None:
    """503 at the handshake: the client tries elsewhere."""
    start, body = await ask({"type": "websocket", "path": "/ws"}, draining=True)
    assert_problem(start, body, 503)


@pytest.mark.parametrize("path", ["/", "/static/app.js", "/ws/more"])
async def test_a_socket_anywhere_else_is_refused(path: str) -> None:
    """Only /ws speaks the protocol."""
    (closed,) = await ask({"type": "websocket", "path": path})
    assert closed["type"] == "websocket.close"
