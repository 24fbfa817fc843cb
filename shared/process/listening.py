"""Listening sockets, and servers that leave signals to the process. The only file that imports
uvicorn."""

from __future__ import annotations

import contextlib
import errno
import socket
from collections.abc import Callable, Iterator
from typing import Any

import uvicorn

from shared.errors import SettingsError


class PortInUse(SettingsError):
    """Another process listens on this address."""


def listener(host: str, port: int, *, section: str, backlog: int = 1024) -> socket.socket:
    """Open a listening TCP socket; port 0 is any free one.

    Raises SettingsError, naming `<section>.host` or `<section>.port`, when the address is not
    available; PortInUse, a subclass, when another process has it.
    """
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as exc:
        raise SettingsError(f"{section}.host is {host!r}, which is no address here: {exc}; write 127.0.0.1") from None
    family, kind, protocol, _, address = found[0]
    # With its protocol named: asyncio turns Nagle's algorithm off only then, and answers would wait
    # 40 ms.
    made = socket.socket(family, kind, protocol)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind(address)
        made.listen(backlog)
    except OSError as exc:
        made.close()
        where = f"{section}.port {port} on {host!r}"
        if exc.errno == errno.EADDRINUSE:
            raise PortInUse(f"{where} is taken; stop what uses it, or set another one (0 = any free)") from None
        raise SettingsError(f"{where} cannot be used: {exc.strerror}; set another one") from None
    made.setblocking(False)
    return made


def address_of(listening: socket.socket) -> str:
    """Return `host:port` of a listening socket."""
    host, port, *_ = listening.getsockname()
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


class Server(uvicorn.Server):
    """A uvicorn server without its signal handlers, for the process decides when its services end,
    and without its log. `more` are settings of uvicorn."""

    def __init__(self, app: Callable[..., Any], **more: Any) -> None:
        usual = {"log_config": None, "access_log": False, "proxy_headers": False, "server_header": False}
        super().__init__(uvicorn.Config(app, lifespan="off", timeout_graceful_shutdown=1, **(usual | more)))

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Capture none."""
        yield
