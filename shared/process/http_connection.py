"""A connection of an HTTP server that ends when its client takes too long, and its acceptance."""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
from collections.abc import Callable
from typing import Any, Final, Literal, cast

from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from shared.log import logger
from shared.metrics import CONNECTIONS_CUT
from shared.process.places import ConnectionPlace, ListenerPlaces

AT_ONCE: Final = 16
"""Connections accepted in one iteration of the event loop. The file of one that gave way is closed
in the next, so at most this many files are open beyond the places."""

RETRY_S: Final = 0.1
_NO_FILES: Final = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}

Phase = Literal["header", "body", "rest", "answer", "idle", "unread"]
"""What a connection does: its header or its body comes, the rest of the body of an answered request
comes, it is answered, waits for its next request, or is closed when its answer has been read."""

LIMITS_S: Final[dict[Phase, float]] = {"header": 10.0, "body": 150.0, "rest": 2.0, "unread": 30.0}
"""How long each may take. Whoever handles a request limits its body and its answer more closely."""

log = logger("listener")

# Its warnings are what strangers do, line by line: requests that cannot be read, for one.
_errors = logging.getLogger("uvicorn.connections")
_errors.setLevel(logging.ERROR)


class HttpConnection(HttpToolsProtocol):
    """uvicorn's HTTP connection with a limit of time for each phase, and a place."""

    def __init__(
        self, config: Config, state: ServerState, place: ConnectionPlace, places: ListenerPlaces, **more: Any
    ) -> None:
        super().__init__(config, state, {}, **more)
        self.logger = _errors
        self._place = place
        self._places = places
        self._phase: Phase | None = None
        self._over = False  # the connection is lost, or another protocol has it
        self._timer: asyncio.TimerHandle | None = None
        # What of the last request has not come
        self._unread: Literal["header", "body"] | None = "header"

    # Called by the event loop.

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._place.cut = transport.abort
        if self._place.ended:  # it gave way while it was being connected
            transport.abort()
        self._follow()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._follow()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._over = True
        self._place.release()
        self._stop_timer()

    # Called by the parser, by uvicorn's answer and by its own timer.

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.scope["state"]["place"] = self._place
        self._unread = "header"
        self._phase = None  # the limit of a header begins with each one

    def on_headers_complete(self) -> None:
        self._unread = "body"
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._unread = None
        super().on_message_complete()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._follow()

    def timeout_keep_alive_handler(self) -> None:
        super().timeout_keep_alive_handler()
        self._follow()

    def handle_websocket_upgrade(self) -> None:
        super().handle_websocket_upgrade()
        # The socket's protocol has the place from here on: it counts as waiting until its login.
        cast(Any, self.transport.get_protocol()).place = self._place
        self._over = True
        self._stop_timer()

    def _follow(self) -> None:
        """Find out what the connection does; if that has changed, limit the new phase."""
        if self._over or (phase := self._find_phase()) == self._phase:
            return
        self._phase = phase
        self._place.set_waits(phase not in ("body", "answer"))
        self._stop_timer()
        if phase in LIMITS_S:
            self._timer = self.loop.call_later(LIMITS_S[phase], self._end_late)

    def _find_phase(self) -> Phase:
        cycle: Any = self.cycle  # None before the first request, whatever its type says
        answered = cycle is None or cycle.response_complete
        if self.transport.is_closing():
            return "unread"
        if not answered:
            return "answer" if self._unread is None or self.pipeline else "body"
        if self._unread == "body":
            return "rest"
        # Line ends before a request stop uvicorn's timer, but begin no header.
        return "header" if self._unread or self.timeout_keep_alive_task is None else "idle"

    def _end_late(self) -> None:
        CONNECTIONS_CUT.labels(self._places.name, str(self._phase)).inc()
        self.transport.abort()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class ConnectionAcceptor:
    """Accepts the connections of one listening socket. The event loop's own server would accept as
    many as come, before any of them could give way to another."""

    def __init__(
        self,
        listening: socket.socket,
        places: ListenerPlaces,
        make: Callable[[ConnectionPlace], asyncio.Protocol],
    ) -> None:
        self._listening = listening
        self._places = places
        self._make = make
        self._loop = asyncio.get_running_loop()
        self._connecting: set[asyncio.Task[None]] = set()
        self._resume: asyncio.TimerHandle | None = None
        self._listen()

    def close(self) -> None:
        """Accept no more."""
        if self._resume is not None:
            self._resume.cancel()
        self._loop.remove_reader(self._listening)

    async def wait_closed(self) -> None:
        """Wait until all that were accepted are connected."""
        await asyncio.gather(*self._connecting)

    def _listen(self) -> None:
        self._resume = None
        self._loop.add_reader(self._listening, self._accept)

    def _accept(self) -> None:
        for _ in range(AT_ONCE):
            try:
                made, address = self._listening.accept()
            except OSError as exc:
                if exc.errno in _NO_FILES:
                    self._pause(exc)
                return
            made.setblocking(False)
            task = self._loop.create_task(self._connect(made, self._places.open(address[0])))
            self._connecting.add(task)
            task.add_done_callback(self._connecting.discard)

    def _pause(self, exc: OSError) -> None:
        """Free some files, and try again in a moment: the socket stays readable meanwhile."""
        log.error("no file for a connection", listener=self._places.name, error=exc.strerror)
        for _ in range(AT_ONCE):
            self._places.cut_oldest("files")
        self._loop.remove_reader(self._listening)
        self._resume = self._loop.call_later(RETRY_S, self._listen)

    async def _connect(self, made: socket.socket, place: ConnectionPlace) -> None:
        try:
            await self._loop.connect_accepted_socket(lambda: self._make(place), made)
        except OSError:  # it was closed already
            place.release()
            made.close()
