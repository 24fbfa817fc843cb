"""A Redis that is scenery: fakeredis behind a TCP port, so that our own connection speaks to it."""

from __future__ import annotations

import threading
from types import TracebackType

from fakeredis import FakeServer, TcpFakeServer


class _QuietServer(TcpFakeServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that goes in the middle of an answer is no trouble."""


class Scenery:
    """A server in this process, for tests in which Redis only has to hold a few keys. It runs no scripts."""

    def __init__(self) -> None:
        self._server = _QuietServer(("127.0.0.1", 0), server_type="valkey")
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), name="scenery", daemon=True)

    def __enter__(self) -> Scenery:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    @property
    def url(self) -> str:
        """Its address."""
        return f"redis://127.0.0.1:{self._server.server_address[1]}/0"

    def fresh(self) -> str:
        """Forget everything, and return the address."""
        self._server.fake_server = FakeServer(server_type="valkey")
        return self.url
