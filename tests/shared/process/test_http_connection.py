"""Connections of HTTP servers: how long each part may take, and what a flood of them costs others."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import socket
from collections.abc import AsyncIterator
from typing import Any

import pytest
from structlog.testing import capture_logs

from shared.metrics import CONNECTIONS_CUT, totals
from shared.process import http_connection, listening
from shared.process.http_connection import LIMITS_S, ConnectionAcceptor
from shared.process.listening import Server, listener
from shared.process.places import ListenerPlaces
from tests.helpers.wait import eventually

GET = b"GET / HTTP/1.1\r\nHost: h\r\n\r\n"
POST = b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1000\r\n\r\n"


class Site:
    """A server that runs here, with 16 places, and 8 for strangers."""

    def __init__(self, places: ListenerPlaces) -> None:
        self.places = places
        self.port = 0
        self.go = asyncio.Event()
        self.go.set()
        self.bodies: list[bytes] = []
        self.connections: set[Any] = set()

    async def app(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        """Answer at once, unless the path says what to wait for."""
        if scope["path"] == "/known":
            assert scope["state"]["place"].become_known()
        if scope["path"] == "/body":
            message: dict[str, Any] = {"more_body": True}
            while message.get("more_body"):
                message = await receive()
                self.bodies.append(message.get("body", b""))
        await self.go.wait()
        head = [(b"content-length", b"2")]
        await send({"type": "http.response.start", "status": 200, "headers": head})
        await send({"type": "http.response.body", "body": b"ok"})

    async def connect(self, data: bytes = b"") -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(data)
        return reader, writer

    async def load(self, path: str = "/") -> bytes:
        reader, writer = await self.connect(f"GET {path} HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n".encode())
        async with asyncio.timeout(10):
            answer = await reader.read()
        writer.close()
        return answer


@pytest.fixture
async def site(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Site]:
    for phase in ("header", "body", "rest", "unread"):
        monkeypatch.setitem(LIMITS_S, phase, 0.3)
    places = ListenerPlaces("web", 16, 8)
    monkeypatch.setattr(listening, "listener_places", lambda _: places)
    made = Site(places)
    bound = listener("127.0.0.1", 0, section="web")
    made.port = bound.getsockname()[1]
    server = Server(made.app, name="web", interface="asgi3", ws="none", timeout_keep_alive=30)
    serving = asyncio.create_task(server.serve(sockets=[bound]))
    await eventually(lambda: server.started)
    made.connections = server.server_state.connections
    try:
        yield made
    finally:
        made.go.set()
        server.stop()
        await serving


def cut(reason: str) -> float:
    return totals(CONNECTIONS_CUT).get(("web", reason), 0)


@pytest.mark.parametrize(
    ("before", "piece", "reason"),
    [
        (b"", b"", "header"),
        (b"GET / HTTP/1.1\r\n", b"a", "header"),
        (GET, b"\r\n", "header"),
        (GET + b"GET", b"", "header"),
        (POST, b"x", "rest"),
        (POST.replace(b" / ", b" /body "), b"x", "body"),
    ],
    ids=["silence", "header by bytes", "line ends", "half a second request", "unread body by bytes", "body by bytes"],
)
async def test_who_is_slow_is_ended(site: Site, before: bytes, piece: bytes, reason: str) -> None:
    """Each part has a time that bytes do not prolong; the reason is counted, and the place is free again."""
    had = cut(reason)
    reader, writer = await site.connect(before)
    ended = asyncio.create_task(reader.read())
    async with asyncio.timeout(5):
        while not ended.done():
            with contextlib.suppress(OSError):
                writer.write(piece)
            await asyncio.wait([ended], timeout=0.02)
    with contextlib.suppress(ConnectionResetError):
        ended.result()
    assert cut(reason) == had + 1
    writer.close()
    await eventually(lambda: not site.places._count_strangers())


async def test_an_answer_has_no_limit_and_each_header_has_its_own(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only what comes from the client has a time; uvicorn's own ends a connection between two requests."""
    monkeypatch.setitem(LIMITS_S, "header", 60.0)
    began = asyncio.get_running_loop().time()
    for phase, data in [("answer", GET), ("idle", b""), ("header", GET[:9]), ("answer", GET[9:]), ("header", GET[:9])]:
        site.go.clear() if phase == "answer" else site.go.set()
        if phase == "answer" and data == GET:
            reader, writer = await site.connect()
        writer.write(data)
        await eventually(lambda: [one._phase for one in site.connections] == [phase])  # noqa: B023
        [connection] = site.connections
        assert (connection._timer is not None) == (phase == "header")
        if connection._timer is not None:
            assert connection._timer.when() > began + LIMITS_S["header"]
            began = connection._timer.when() - LIMITS_S["header"]
        if phase == "idle":
            await reader.readuntil(b"ok")
    writer.close()


async def test_a_page_is_loaded_however_many_are_silent(site: Site) -> None:
    """The oldest give way, and never more are connected than there are places."""
    silent = [await site.connect() for _ in range(60)]
    for _ in range(5):
        assert (await site.load()).endswith(b"ok")
    assert site.places._count_strangers() <= 8
    for _, writer in silent:
        writer.close()


async def test_known_people_stay_connected_beside_a_flood(site: Site) -> None:
    """Their connection is not a stranger's any more."""
    reader, writer = await site.connect(GET.replace(b" / ", b" /known "))
    await reader.readuntil(b"ok")
    silent = [await site.connect() for _ in range(60)]
    assert site.places.known == 1
    writer.write(GET)
    async with asyncio.timeout(5):
        assert await reader.readuntil(b"ok")
    writer.close()
    await eventually(lambda: not site.places.known)
    for _, other in silent:
        other.close()


async def test_a_request_that_is_being_answered_gives_way_last(site: Site) -> None:
    """A flood of silence does not cut it off."""
    site.go.clear()
    reader, writer = await site.connect(GET)
    await eventually(lambda: len(site.places._all[False]) == 1)
    silent = [await site.connect() for _ in range(60)]
    site.go.set()
    async with asyncio.timeout(5):
        assert await reader.readuntil(b"ok")
    for _, other in [*silent, (reader, writer)]:
        other.close()


async def test_a_body_and_pipelined_requests_come_whole(site: Site) -> None:
    """Limits change nothing for those who keep them."""
    body = b"x" * 200_000
    head = POST.replace(b"1000", b"%d" % len(body)).replace(b" / ", b" /body ")
    reader, writer = await site.connect(head + body + GET + GET)
    async with asyncio.timeout(5):
        for _ in range(3):
            await reader.readuntil(b"ok")
    assert b"".join(site.bodies) == body
    writer.close()


async def test_nonsense_of_strangers_leaves_no_line(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    """They would fill the log."""
    reader, writer = await site.connect(b"\x00\x01nonsense\r\n\r\n")
    assert b"400" in await reader.read()
    writer.close()
    assert [record for record in caplog.records if record.name.startswith("uvicorn")] == []


async def test_without_a_file_for_a_connection_others_give_way_and_it_is_tried_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The process does not spin on a socket that stays readable, and a line says so."""
    monkeypatch.setattr(http_connection, "RETRY_S", 0.01)
    places = ListenerPlaces("web", 16, 8)
    places.open("10.0.0.1")

    class FullSocket(socket.socket):
        tries = 0

        def accept(self) -> tuple[socket.socket, Any]:
            self.tries += 1
            if self.tries <= 2:
                raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
            return super().accept()

    with FullSocket() as bound:
        bound.bind(("127.0.0.1", 0))
        bound.listen()
        bound.setblocking(False)
        made = asyncio.Event()

        class Accepted(asyncio.Protocol):
            def connection_made(self, transport: asyncio.BaseTransport) -> None:
                made.set()
                transport.close()

        acceptor = ConnectionAcceptor(bound, places, lambda _: Accepted())
        with capture_logs() as logs:
            _, writer = await asyncio.open_connection(*bound.getsockname())
            async with asyncio.timeout(5):
                await made.wait()
        writer.close()
        acceptor.close()
        await acceptor.wait_closed()
    assert bound.tries >= 3
    assert [line["event"] for line in logs] == ["no file for a connection"] * 2
