"""The listening socket of the web gateway, and its server."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Final

from starlette.types import ASGIApp

from gateway.channels.web.socket.connection import PageConnection
from shared.messages.web import FRAME_LIMIT_BYTES
from shared.process.listening import Server, listener

USER_TIMEOUT_MS: Final = 30_000
PING_S: Final = 20.0


def bind(host: str, port: int) -> socket.socket:
    """Return a listening socket. Raises SettingsError when the address cannot be used."""
    made = listener(host, port, section="web")
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        # Inherited by every connection. The kernel drops one whose client reads nothing for this
        # long; close() alone cannot, while bytes wait to be sent.
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, USER_TIMEOUT_MS)
    return made


class WebServer(Server):
    """Serves an app until `stop`."""

    def __init__(self, app: ASGIApp, *, on_started: Callable[[], None]) -> None:
        super().__init__(
            app,
            name="web",
            ws=PageConnection,
            ws_max_size=FRAME_LIMIT_BYTES,
            ws_ping_interval=PING_S,
            ws_ping_timeout=PING_S,
            ws_per_message_deflate=False,
        )
        self._on_started = on_started

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._on_started()
