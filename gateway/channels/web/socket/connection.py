"""The connection of one page, taken over from ASGI, and the frames that wait to be sent on it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final, Protocol, cast

from starlette.types import Scope
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from shared.process.places import ConnectionPlace

EXTENSION: Final = "shoal.connection"

_TEXT: Final = 0x81  # a whole text message in one frame (RFC 6455, 5.2)


class ConnectionListener(Protocol):
    """The receiver of a connection's texts (None stands for bytes), of the news that it may be
    written to again, and of its end: what is written then does not arrive. No method may raise."""

    def on_text(self, text: str | None) -> None: ...

    def on_writable(self) -> None: ...

    def on_closed(self) -> None: ...


class PageConnection(WebSocketsSansIOProtocol):
    """uvicorn's web socket: handshake, pings and closing. An app accepts and closes it by ASGI.

    Texts bypass ASGI, because they are most of the cost of a page: one that comes is a call of the
    listener, without a queue and a task, and one that goes is bytes for the transport. This uses
    private parts of uvicorn; a test fails when they move."""

    full = False
    """True while more waits to be sent than the transport's limit (64 kB)."""

    place: ConnectionPlace | None = None
    """Set by the HTTP connection that this one was before."""

    _listener: ConnectionListener | None = None

    def attach(self, listener: ConnectionListener) -> None:
        """Hand all that was read, and that comes, to `listener`; for an accepted socket."""
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
        """Send a text as UTF-8; a connection that is closing ignores it."""
        if not self.close_sent and not self.transport.is_closing():
            self.transport.write(_frame_head(len(text)) + text)

    # Called by uvicorn.

    def handle_connect(self, event: Any) -> None:
        super().handle_connect(event)
        if not self.close_sent:
            # The app's task has not run yet, so it finds itself in the scope.
            cast(Scope, self.scope)["extensions"][EXTENSION] = self

    def send_receive_event_to_app(self) -> None:
        listener = self._listener
        if listener is None or self.close_sent:
            super().send_receive_event_to_app()
            return
        # A message may come in several frames.
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
        if self.place is not None:
            self.place.release()

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
    """Return the connection of the scope that an app was called with; works once."""
    # Taken out: else scope and connection would keep each other alive.
    connection = scope["extensions"].pop(EXTENSION)
    assert isinstance(connection, PageConnection)
    return connection


def _frame_head(size: int) -> bytes:
    if size < 126:
        return bytes((_TEXT, size))
    if size < 65536:
        return bytes((_TEXT, 126)) + size.to_bytes(2)
    return bytes((_TEXT, 127)) + size.to_bytes(8)


FRAMES_LIMIT: Final = 1024
BYTES_LIMIT: Final = 8 * 1024 * 1024
"""Beyond either limit the client does not read: the socket is closed, and resumes from the log."""

LIVE_LIMIT: Final = 64
"""While this many frames wait, live frames are dropped; a full delta repairs the text."""

DRAINED_FRAMES: Final = 32  # `drain` returns when fewer frames and bytes wait
DRAINED_BYTES: Final = 256 * 1024


class FrameWriter(Protocol):
    """The target of frames: a PageConnection."""

    full: bool

    def write(self, text: bytes) -> None: ...


class SendQueue:
    """Frames for one connection, in order. They wait while the connection is full. `give_up` is
    called once, when too many wait or the connection stays full for `stuck_s`."""

    # An idle page costs no task, no event and no queue.

    def __init__(self, connection: FrameWriter, *, stuck_s: float, give_up: Callable[[], None]) -> None:
        self._connection = connection
        self._stuck_s = stuck_s
        self._give_up = give_up
        self._waiting: list[bytes] = []
        self._bytes = 0
        self._stuck: asyncio.TimerHandle | None = None
        self._progress: asyncio.Event | None = None
        self._closed = False

    def send(self, frame: bytes) -> None:
        """Send a frame, or let it wait."""
        if self._closed:
            return
        if not self._waiting and not self._connection.full:
            self._connection.write(frame)
            return
        if len(self._waiting) >= FRAMES_LIMIT or self._bytes > BYTES_LIMIT:
            self._give_up_now()
            return
        self._waiting.append(frame)
        self._bytes += len(frame)
        if self._stuck is None:
            self._stuck = asyncio.get_running_loop().call_later(self._stuck_s, self._give_up_now)

    def send_live(self, frame: bytes) -> None:
        """Send a frame unless many wait."""
        if len(self._waiting) < LIVE_LIMIT and self._bytes <= DRAINED_BYTES:
            self.send(frame)

    def resume(self) -> None:
        """Send what waits until the connection is full again."""
        sent = 0
        while sent < len(self._waiting) and not self._connection.full:
            frame = self._waiting[sent]
            sent += 1
            self._bytes -= len(frame)
            self._connection.write(frame)
        del self._waiting[:sent]
        self._on_progress()
        if self._waiting:
            self._stuck = asyncio.get_running_loop().call_later(self._stuck_s, self._give_up_now)

    async def drain(self) -> None:
        """Return when few frames wait."""
        while len(self._waiting) >= DRAINED_FRAMES or self._bytes > DRAINED_BYTES:
            await self._wait_for_progress()

    async def flush(self) -> None:
        """Return when no frame waits."""
        while self._waiting:
            await self._wait_for_progress()

    def finish(self) -> None:
        """Ignore further frames; those that wait are still sent."""
        self._closed = True

    def drop(self) -> None:
        """Ignore further frames, and drop those that wait."""
        self._closed = True
        self._waiting = []
        self._bytes = 0
        self._on_progress()

    def _give_up_now(self) -> None:
        self.drop()
        self._give_up()

    def _on_progress(self) -> None:
        """Stop the timer of a stuck connection, and let `drain` and `flush` check again."""
        if self._stuck is not None:
            self._stuck.cancel()
            self._stuck = None
        if self._progress is not None:
            self._progress.set()
            self._progress = None

    async def _wait_for_progress(self) -> None:
        if self._progress is None:
            self._progress = asyncio.Event()
        await self._progress.wait()
