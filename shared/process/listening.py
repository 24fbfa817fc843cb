"""Listening sockets, servers that leave signals to the process, and HTTP endpoints for machines:
/metrics, /healthz (does it answer), /readyz (should it get work)."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
from collections.abc import Awaitable, Callable, Iterator
from itertools import count
from typing import Any, Final

import uvicorn

from shared.errors import SettingsError
from shared.metrics import render
from shared.process.http_connection import ConnectionAcceptor, HttpConnection
from shared.process.places import ConnectionPlace, ListenerName, listener_places
from shared.tasks import completed, event_within

GRACE_S: Final = 1.0  # requests and connections may take so long when a server ends
TICK_S: Final = 0.1
LOOK_S: Final = 0.01

_TEXT: Final = "text/plain; charset=utf-8"


class PortInUse(SettingsError):
    """Another process listens on this address."""


def listener(host: str, port: int, *, section: str, backlog: int = 1024) -> socket.socket:
    """Open a listening TCP socket; port 0 is any free one. Raises SettingsError, naming
    `<section>.host` or `<section>.port`, when the address is not available; PortInUse, a subclass,
    when another process has it."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as exc:
        raise SettingsError(
            f"{section}.host is {host!r}, which is not an address here: {exc}; write 127.0.0.1"
        ) from None
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
    and without its log. Its connections have limits of time, and places by `name` (see
    `shared.process.places`). `more` are settings of uvicorn."""

    def __init__(self, app: Callable[..., Any], *, name: ListenerName, **more: Any) -> None:
        usual = dict.fromkeys(("access_log", "proxy_headers", "server_header"), False) | more
        config = uvicorn.Config(app, lifespan="off", log_config=None, **usual)
        super().__init__(config)
        self._name = name
        self._stopping = asyncio.Event()

    def stop(self) -> None:
        """Let `serve` end, at once if nothing is under way."""
        self.should_exit = True
        self._stopping.set()

    async def main_loop(self) -> None:
        """Tick until `stop`."""
        ticks = count()
        while not await self.on_tick(next(ticks)):
            await event_within(self._stopping, TICK_S)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept nothing more, and wait for what is under way, then end it. uvicorn's own waits two
        tenths of a second even for nothing."""
        for closed in (*self.servers, *(sockets or ())):
            closed.close()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(GRACE_S):
                for server in self.servers:
                    await server.wait_closed()
                for connection in list(self.server_state.connections):
                    connection.shutdown()
                while self.server_state.connections or self.server_state.tasks:  # noqa: ASYNC110 - uvicorn tells nobody
                    await asyncio.sleep(LOOK_S)
        for task in self.server_state.tasks:
            task.cancel()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        places = listener_places(self._name)

        def connect(place: ConnectionPlace) -> HttpConnection:
            return HttpConnection(self.config, self.server_state, place, places)

        # uvicorn closes them, and waits until they are closed.
        self.servers = [ConnectionAcceptor(each, places, connect) for each in sockets or ()]  # type: ignore[misc]
        self.started = True

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Capture none."""
        yield


class HealthServer:
    """Answers on `host`:`port` (0 = any free one) while it runs. `ready` gives None, or why the
    process is not. With `spare`, any free port is taken when the wanted one is not free. `refresh`
    is awaited before metrics are written, for readings that are made on demand. `detail` is what
    /readyz says besides, when the process is ready. It has no password: the address belongs on
    loopback or on a network that only the monitoring reaches."""

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
        self.port = port  # the port it listens on; the wanted one before start()
        self._spare = spare
        self._refresh = refresh
        self._host = host
        self._ready = ready
        self._detail = detail
        self._server = Server(self._answer, name="metrics", interface="asgi3", ws="none", server_header=True)
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Listen. Raises SettingsError, naming the setting, when the address is not available."""
        try:
            listening = listener(self._host, self.port, section="metrics", backlog=64)
        except PortInUse:
            if not self._spare:
                raise
            listening = listener(self._host, 0, section="metrics", backlog=64)
        self.port = int(listening.getsockname()[1])
        serving = self._server.serve(sockets=[listening])
        self._task = asyncio.create_task(serving, name="health")

    async def stop(self) -> None:
        """Close the address. Harmless when it was never started."""
        if self._task:
            self._server.stop()
            await completed(self._task)

    async def _answer(self, scope: dict[str, Any], receive: object, send: Callable[[object], Awaitable[None]]) -> None:
        method = scope["method"]
        path = scope["path"]
        if path == "/metrics" and self._refresh is not None:
            await self._refresh()
        status, body, kind = self._page(method, path)
        headers = [(b"content-type", kind.encode()), (b"content-length", b"%d" % len(body))]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": b"" if method == "HEAD" else body})

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
