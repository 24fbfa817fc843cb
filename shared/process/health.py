"""HTTP endpoints for machines: /metrics, /healthz (does it answer), /readyz (should it get
work)."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from shared.metrics import render
from shared.process.listening import PortInUse, Server, listener

_TEXT = "text/plain; charset=utf-8"

_Message = MutableMapping[str, Any]


class HealthServer:
    """Answers on `host`:`port` (0 = any free one) while it runs. `ready` gives None, or why the
    process is not.

    With `spare`, any free port is taken when the wanted one is not free. `refresh` is awaited
    before metrics are written, for readings that are made on demand. `detail` is what /readyz says
    besides, when the process is ready. It has no password: the address belongs on loopback or on a
    network that only the monitoring reaches.
    """

    def __init__(
        self,
        host: str,
        port: int,
        ready: Callable[[], str | None],
        *,
        refresh: Callable[[], Awaitable[None]] | None = None,
        spare: bool = False,
        detail: Callable[[], str] = lambda: "",
    ) -> None:
        self._spare = spare
        self._refresh = refresh
        self._host = host
        self._wanted_port = port
        self._ready = ready
        self._detail = detail
        self._socket: socket.socket | None = None
        self._server: Server | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def port(self) -> int:
        """The port it listens on; the wanted one before start()."""
        return int(self._socket.getsockname()[1]) if self._socket else self._wanted_port

    async def start(self) -> None:
        """Listen. Raises SettingsError, naming the setting, when the address is not available."""
        try:
            self._socket = listener(self._host, self._wanted_port, section="metrics", backlog=64)
        except PortInUse:
            if not self._spare:
                raise
            self._socket = listener(self._host, 0, section="metrics", backlog=64)
        self._server = Server(self._answer, interface="asgi3", ws="none", server_header=True)
        self._task = asyncio.create_task(self._server.serve(sockets=[self._socket]), name="health")

    async def stop(self) -> None:
        """Close the address. Harmless when it was never started."""
        if self._server and self._task:
            self._server.should_exit = True
            await self._task
        if self._socket:
            self._socket.close()

    async def _answer(
        self,
        scope: _Message,
        receive: Callable[[], Awaitable[_Message]],
        send: Callable[[_Message], Awaitable[None]],
    ) -> None:
        if scope["path"] == "/metrics" and self._refresh is not None:
            await self._refresh()
        status, body, kind = self._page(scope["method"], scope["path"])
        headers = [(b"content-type", kind.encode()), (b"content-length", str(len(body)).encode())]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else body})

    def _page(self, method: str, path: str) -> tuple[int, bytes, str]:
        if method not in ("GET", "HEAD"):
            return 405, b"only GET\n", _TEXT
        match path:
            case "/metrics":
                return 200, *render()
            case "/healthz":
                return 200, b"ok\n", _TEXT
            case "/readyz":
                reason = self._ready()
                if reason is not None:
                    return 503, f"{reason}\n".encode(), _TEXT
                return 200, f"ready\n{self._detail()}".encode(), _TEXT
            case _:
                return 404, b"only /metrics, /healthz and /readyz\n", _TEXT
