"""The connection of one page, taken over from ASGI once it is open: texts come and go by plain
calls."""

from __future__ import annotations

from typing import Any, Final, Protocol, cast

from starlette.types import Scope
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

EXTENSION: Final = "shoal.connection"

_TEXT: Final = 0x81
"""A whole text message in one frame (RFC 6455, 5.2)."""


class ConnectionListener(Protocol):
    """Who has taken a connection over. Nothing here may raise."""

    def on_text(self, text: str | None) -> None:
        """The client said this; None for bytes."""
        ...

    def on_writable(self) -> None:
        """`full` is over."""
        ...

    def on_closed(self) -> None:
        """Nothing more comes, and nothing that is written arrives."""
        ...


class PageConnection(WebSocketsSansIOProtocol):
    """uvicorn's web socket: handshake, pings and the closing are its own, and an app answers and
    closes through ASGI.

    What lies between costs a page most, so it goes past ASGI: a text that comes is a call of the
    listener instead of a queue and a task that waits at it, and one that goes is bytes for the
    transport.
    """

    full = False
    """Whether more waits to be sent than the transport likes to hold (64 kB)."""

    _listener: ConnectionListener | None = None

    def attach(self, listener: ConnectionListener) -> None:
        """Take the connection over: what was read already is heard at once, and whatever comes. For
        an app that has accepted it."""
        self._listener = listener
        while not self.queue.empty():
            message = self.queue.get_nowait()
            if message["type"] == "websocket.receive":
                listener.on_text(message.get("text"))
            else:
                listener.on_closed()
        if self.read_paused:
            self.read_paused = False
            self.transport.resume_reading()

    def write(self, text: bytes) -> None:
        """Send a text, UTF-8; nothing on a connection that is closing."""
        if not self.close_sent and not self.transport.is_closing():
            self.transport.write(_frame_head(len(text)) + text)

    # What uvicorn calls.

    def handle_connect(self, event: Any) -> None:
        super().handle_connect(event)
        if not self.close_sent:
            # The app's task has not begun to run.
            cast(Scope, self.scope)["extensions"][EXTENSION] = self

    def send_receive_event_to_app(self) -> None:
        listener = self._listener
        if listener is None or self.close_sent:
            super().send_receive_event_to_app()
            return
        data = self.frames[0] if len(self.frames) == 1 else b"".join(self.frames)
        self.frames = []
        if self.curr_msg_data_type != "text":
            listener.on_text(None)
            return
        try:
            text = data.decode()
        except UnicodeDecodeError:
            self.conn.send_close(1007)
            self.handle_parser_exception()
            return
        listener.on_text(text)

    def handle_close(self, event: Any) -> None:
        super().handle_close(event)
        self._notify_closed()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._notify_closed()
        self._listener = None

    def pause_writing(self) -> None:
        super().pause_writing()
        self.full = True

    def resume_writing(self) -> None:
        super().resume_writing()
        self.full = False
        if self._listener is not None:
            self._listener.on_writable()

    def _notify_closed(self) -> None:
        if self._listener is not None:
            self._listener.on_closed()


def connection_of(scope: Scope) -> PageConnection:
    """The connection that an app was called for; once."""
    connection = scope["extensions"].pop(EXTENSION)  # both would hold each other
    assert isinstance(connection, PageConnection)
    return connection


def _frame_head(size: int) -> bytes:
    if size < 126:
        return bytes((_TEXT, size))
    if size < 65536:
        return bytes((_TEXT, 126)) + size.to_bytes(2)
    return bytes((_TEXT, 127)) + size.to_bytes(8)
