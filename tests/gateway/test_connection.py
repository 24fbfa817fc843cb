"""The connection of a page: what goes past ASGI, and what does not."""

from __future__ import annotations

import asyncio
import inspect
import os
import re
from collections.abc import Awaitable, Callable
from typing import Any, Final

import pytest
import uvicorn
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from uvicorn.server import ServerState
from websockets.frames import CloseCode, Frame, Opcode
from websockets.protocol import CLIENT, OPEN, Protocol

from gateway.channels.web.socket.connection import EXTENSION, PageConnection, connection_of
from tests.helpers.wait import eventually

Send = Callable[[dict[str, Any]], Awaitable[None]]

HANDSHAKE: Final = (
    b"GET /ws HTTP/1.1\r\nHost: here\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
)


LIMIT: Final = 1024 * 1024


class Pipe(asyncio.Transport):
    """A transport that keeps what is written."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self.reading = True
        self.closed = False

    def write(self, data: Any) -> None:
        self.written += data

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True


class Ears:
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.reported: list[object] = []

    def on_text(self, text: str | None) -> None:
        self.reported.append(text)

    def on_writable(self) -> None:
        self.reported.append("room")

    def on_closed(self) -> None:
        self.reported.append("gone")


class Opened:
    """A connection that an app has accepted and taken over; `early` came before that."""

    def __init__(self, early: bytes = b"") -> None:
        self.pipe, self.ears = Pipe(), Ears()
        self.scope: dict[str, Any] = {}
        self.send: Send
        self.over = asyncio.Event()
        config = uvicorn.Config(self._app, interface="asgi3", ws=PageConnection, ws_max_size=LIMIT, log_config=None)
        config.load()
        self.connection = PageConnection(config, ServerState(), {})
        self.connection.connection_made(self.pipe)
        self.connection.data_received(HANDSHAKE)
        if early:
            self.connection.data_received(early)

    async def _app(self, scope: dict[str, Any], receive: Callable[[], Awaitable[dict[str, Any]]], send: Send) -> None:
        assert (await receive())["type"] == "websocket.connect"
        await send({"type": "websocket.accept"})
        self.pipe.written = b""
        self.scope, self.send = scope, send
        connection_of(scope).attach(self.ears)
        await self.over.wait()

    async def ready(self) -> Opened:
        await eventually(lambda: bool(self.scope), within_s=60)
        return self

    def sent(self) -> list[Frame]:
        """What a client would read of what was written."""
        client = Protocol(CLIENT, state=OPEN, max_size=None)
        client.receive_data(self.pipe.written)
        frames = client.events_received()
        assert all(isinstance(frame, Frame) for frame in frames)
        return [frame for frame in frames if isinstance(frame, Frame)]


def sent(data: bytes, opcode: Opcode = Opcode.TEXT, *, fin: bool = True) -> bytes:
    """A frame as a client writes it."""
    return Frame(opcode, data, fin).serialize(mask=True)


@pytest.mark.parametrize("size", [0, 1, 125, 126, 65_535, 65_536, 200_000])
async def test_a_text_of_any_size_is_one_frame_that_clients_read(size: int) -> None:
    """The three ways in which a frame says its length."""
    on = await Opened().ready()
    on.connection.write(b"x" * size)
    on.connection.write("né".encode())
    assert [(frame.opcode, bytes(frame.data), frame.fin) for frame in on.sent()] == [
        (Opcode.TEXT, b"x" * size, True),
        (Opcode.TEXT, "né".encode(), True),
    ]


async def test_what_came_before_the_app_attached_is_handed_over_first() -> None:
    """A client need not wait for the handshake's answer to say hello."""
    on = await Opened(early=sent(b"hello")).ready()
    on.connection.data_received(sent(b"one") + sent(b"two"))
    assert on.ears.reported == ["hello", "one", "two"]
    assert on.pipe.reading


async def test_a_text_in_pieces_arrives_whole_and_bytes_as_none() -> None:
    """Pieces of one message, wherever they are cut."""
    on = await Opened().ready()
    data = (
        sent("dé".encode()[:2], fin=False) + sent("dé".encode()[2:], Opcode.CONT) + sent(os.urandom(3), Opcode.BINARY)
    )
    for at in range(len(data)):
        on.connection.data_received(data[at : at + 1])
    assert on.ears.reported == ["dé", None]


async def test_pings_are_answered_without_the_app() -> None:
    """They are the server's."""
    on = await Opened().ready()
    on.connection.data_received(sent(b"12", Opcode.PING))
    [pong] = on.sent()
    assert (pong.opcode, bytes(pong.data)) == (Opcode.PONG, b"12")
    assert on.ears.reported == []


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (sent(b"\xff\xfe"), CloseCode.INVALID_DATA),
        (sent(b"x" * (LIMIT + 1)), CloseCode.MESSAGE_TOO_BIG),
        (b"\xf1\x80\0\0\0\0", CloseCode.PROTOCOL_ERROR),
    ],
    ids=["no UTF-8", "too big", "a bit of no extension"],
)
async def test_bytes_that_are_not_utf8_end_the_connection_and_are_dropped(data: bytes, code: CloseCode) -> None:
    """As the standard wants it; the app hears that the client is gone when the transport says so."""
    on = await Opened().ready()
    on.connection.data_received(data)
    [closing] = on.sent()
    assert (closing.opcode, closing.data[:2]) == (Opcode.CLOSE, int(code).to_bytes(2))
    assert on.pipe.closed
    on.connection.connection_lost(None)
    assert on.ears.reported == ["gone"]


async def test_a_client_that_says_goodbye_is_gone_at_once() -> None:
    """Nothing is written behind the closing frame, and what comes after it is not heard."""
    on = await Opened().ready()
    on.connection.data_received(sent(b"last") + sent(b"\x03\xe8", Opcode.CLOSE) + sent(b"late"))
    assert on.ears.reported == ["last", "gone"]
    on.connection.write(b"late")
    assert [frame.opcode for frame in on.sent()] == [Opcode.CLOSE]


async def test_after_the_app_closed_nothing_is_written_or_read() -> None:
    """The close frame is the last of a connection."""
    on = await Opened().ready()
    await on.send({"type": "websocket.close", "code": 1012, "reason": ""})
    on.connection.write(b"late")
    on.connection.data_received(sent(b"late"))
    assert [frame.opcode for frame in on.sent()] == [Opcode.CLOSE]
    assert on.ears.reported == []
    on.over.set()


async def test_a_full_transport_shows_and_says_when_it_is_over() -> None:
    """What the transport holds is bounded by whoever writes."""
    on = await Opened().ready()
    on.connection.pause_writing()
    assert on.connection.full
    on.connection.resume_writing()
    assert not on.connection.full
    assert on.ears.reported == ["room"]


async def test_a_connection_is_attached_once_and_is_released_after_its_end() -> None:
    """Thousands come and go: what is gone waits for no garbage collector because of this."""
    on = await Opened().ready()
    assert EXTENSION not in on.scope["extensions"]
    on.connection.connection_lost(None)
    on.connection.resume_writing()
    assert on.ears.reported == ["gone"]
    on.over.set()


def test_the_private_parts_of_uvicorn_that_the_connection_uses_exist() -> None:
    """`PageConnection` reads and overrides what uvicorn does not promise. When this fails after an update of uvicorn,
    check `gateway/channels/web/socket/connection.py` before the upper bound in pyproject.toml is raised."""
    source = inspect.getsource(WebSocketsSansIOProtocol)
    overridden = {
        "handle_connect": ["event"],
        "handle_close": ["event"],
        "send_receive_event_to_app": [],
        "connection_lost": ["exc"],
        "pause_writing": [],
        "resume_writing": [],
        "handle_parser_exception": [],
    }
    for name, parameters in overridden.items():
        found = list(inspect.signature(getattr(WebSocketsSansIOProtocol, name)).parameters)
        assert found == ["self", *parameters], name
    for name in ("queue", "read_paused", "transport", "close_sent", "frames", "curr_msg_data_type", "conn", "scope"):
        assert re.search(rf"self\.{name}\b.* = ", source), f"uvicorn's connection has no {name!r} any more"
    for line in ('{"type": "websocket.receive", "text": data.decode()}', "self.conn.send_close(1007)"):
        assert line in source
