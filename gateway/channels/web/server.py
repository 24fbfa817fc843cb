"""The door to uvicorn: an address to listen on, and a server that leaves signals to the process."""

from __future__ import annotations

import contextlib
import errno
import socket
from collections.abc import Callable, Iterator
from typing import Final

import uvicorn
from starlette.types import ASGIApp

from gateway.channels.web.protocol import FRAME_LIMIT_BYTES
from shared.errors import SettingsError

USER_TIMEOUT_MS: Final = 30_000
PING_S: Final = 20.0


def bind(host: str, port: int) -> socket.socket:
    """A listening socket. Raises SettingsError, naming the setting, when the address cannot be had."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as exc:
        raise SettingsError(f"web.host is {host!r}, which is no address here: {exc}; write 127.0.0.1") from None
    family, kind, protocol, _, address = found[0]
    # With its protocol named: asyncio turns Nagle's algorithm off only then, and answers would wait 40 ms.
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if hasattr(socket, "TCP_USER_TIMEOUT"):
            # Inherited by every connection: one whose client reads nothing for so long is dropped by the kernel,
            # which closing it cannot do while bytes wait.
            listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, USER_TIMEOUT_MS)
        listener.bind(address)
        listener.listen(1024)
    except OSError as exc:
        listener.close()
        if exc.errno == errno.EADDRINUSE:
            raise SettingsError(
                f"web.port {port} on {host!r} is taken; stop what uses it, or set another one"
            ) from None
        raise SettingsError(f"web.port {port} on {host!r} cannot be used: {exc.strerror}; set another one") from None
    listener.setblocking(False)
    return listener


class Server(uvicorn.Server):
    """Serves an app until `should_exit` is set."""

    def __init__(self, app: ASGIApp, *, on_started: Callable[[], None]) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                http="httptools",
                ws="websockets-sansio",
                ws_max_size=FRAME_LIMIT_BYTES,
                ws_ping_interval=PING_S,
                ws_ping_timeout=PING_S,
                ws_per_message_deflate=False,
                lifespan="off",
                log_config=None,
                access_log=False,
                proxy_headers=False,
                server_header=False,
                timeout_graceful_shutdown=1,
            )
        )
        self._on_started = on_started

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._on_started()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """The process decides when its services end."""
        yield


def address_of(listener: socket.socket) -> str:
    """`host:port` of a listening socket."""
    host, port, *_ = listener.getsockname()
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
