"""The listening socket of a runner: accepts workers and reads one request from each connection."""

from __future__ import annotations

import contextlib
import errno
import os
import selectors
import socket
import stat
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from shared.errors import SettingsError
from shared.log import logger
from worker.sandbox.runner import frames

REQUEST_S: Final = 10.0  # time that a worker has to send its request
LINGER_S: Final = 1.0
CONNECTION_LIMIT: Final = 128
_READ_BYTES: Final = 256 * 1024

log = logger("runner")


class WorkerConnection:
    """One connection, until its command is started or a reply is sent."""

    def __init__(self, peer: socket.socket) -> None:
        self.socket = peer
        self.closed = False  # set when the worker has hung up: its command is not run any more
        self.replied = False
        self.frames = frames.FrameBodies(frames.REQUEST_LIMIT_BYTES)
        self.requested = False
        self.deadline = time.monotonic() + REQUEST_S


class Acceptor:
    """Listens on a Unix socket for this process's user and `worker_uid`; with the latter it is open
    to its group too. Raises SettingsError if the socket cannot be bound."""

    def __init__(self, path: Path, *, worker_uid: int | None) -> None:
        self.selector = selectors.DefaultSelector()
        self._path = path
        self._allowed_uids = {os.getuid(), os.getuid() if worker_uid is None else worker_uid}
        self._connections: set[WorkerConnection] = set()
        self._listener = _bind_listener(path, 0o600 if worker_uid is None else 0o660)
        self._inode = path.stat().st_ino
        self.selector.register(self._listener, selectors.EVENT_READ, self)

    def wait_for_requests(self, seconds: float) -> list[tuple[WorkerConnection, frames.RunnerRequest]]:
        """Return the requests that have arrived, as soon as there are any or the selector wakes."""
        requests: list[tuple[WorkerConnection, frames.RunnerRequest]] = []
        for key, _ in self.selector.select(seconds):
            if key.data is self:
                self._accept()
            elif isinstance(key.data, WorkerConnection):
                requests += [(key.data, request) for request in self._receive(key.data)]
        now = time.monotonic()
        for connection in [one for one in self._connections if one.deadline < now]:
            if connection.replied:
                self.release(connection)
            elif not connection.requested:
                self.refuse(connection, "nothing was asked for")
        return requests

    def refuse(self, connection: WorkerConnection, reason: str) -> None:
        self.send_reply(connection, frames.RequestRefused(reason))

    def send_reply(self, connection: WorkerConnection, reply: frames.RunnerReply) -> None:
        """Send the last reply, short enough for the socket's buffer, and stay open for LINGER_S: a
        socket closed with unread input resets the connection, and the reply is lost."""
        with contextlib.suppress(OSError):
            connection.socket.send(frames.encode(reply))
            connection.socket.shutdown(socket.SHUT_WR)
        connection.replied = connection.closed = True
        connection.deadline = time.monotonic() + LINGER_S

    def close_all_but(self, connection: WorkerConnection) -> socket.socket:
        """Close all but this connection, in a forked process, and return its socket. Nothing is
        unregistered: the parent shares the epoll object, and would lose its connections."""
        self.selector.close()
        self._listener.close()
        for other in self._connections - {connection}:
            other.socket.close()
        return connection.socket

    def close(self) -> None:
        for connection in list(self._connections):
            self.refuse(connection, "the runner stops")
            self.release(connection)
        self._listener.close()
        self.selector.close()
        with contextlib.suppress(OSError):
            # Another runner may have replaced the socket by its own.
            if self._path.lstat().st_ino == self._inode:
                self._path.unlink()

    def _accept(self) -> None:
        try:
            peer, _ = self._listener.accept()
        except OSError as exc:
            if exc.errno in (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS):
                log.error("accept failed", error=exc.strerror)
                time.sleep(0.01)  # the socket stays readable: without a pause this would spin
            return
        peer.setblocking(False)
        connection = WorkerConnection(peer)
        self._connections.add(connection)
        self.selector.register(peer, selectors.EVENT_READ, connection)
        # The kernel vouches for the uid of the process that connected (SO_PEERCRED).
        _, uid, _ = struct.unpack("iII", peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
        if uid not in self._allowed_uids:
            log.warning("stranger refused", uid=uid)
            self.refuse(connection, f"user {uid} is not the worker; set runner.worker_uid")
        elif len(self._connections) > CONNECTION_LIMIT:
            self.refuse(connection, "too many connections; try again later")

    def _receive(self, connection: WorkerConnection) -> Iterator[frames.RunnerRequest]:
        try:
            data = connection.socket.recv(_READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self.release(connection)
            return
        if connection.replied:
            return
        try:
            for body in connection.frames.feed(data):
                if connection.requested:
                    raise frames.BadRunnerFrame("a second request on one connection")
                connection.requested = True
                yield frames.decode_request(body)
        except frames.BadRunnerFrame as exc:
            log.warning("bad frame refused", error=str(exc))
            self.refuse(connection, str(exc))

    def release(self, connection: WorkerConnection) -> None:
        """Close and forget a connection, also one that another process serves from now on."""
        connection.closed = True
        if connection in self._connections:
            self._connections.discard(connection)
            self.selector.unregister(connection.socket)
            connection.socket.close()


def _bind_listener(path: Path, mode: int) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists() and stat.S_ISSOCK(path.lstat().st_mode):
            _remove_stale_socket(path)
        # By umask, not chmod: between bind and chmod anybody could connect.
        before = os.umask(0o777 & ~mode)
        try:
            listener.bind(str(path))
        finally:
            os.umask(before)
        listener.listen(CONNECTION_LIMIT)
    except OSError as exc:
        listener.close()
        why = "its path is too long" if "too long" in str(exc) else exc.strerror
        raise SettingsError(f"runner.socket {str(path)!r} cannot be had: {why}; set another one") from None
    listener.setblocking(False)
    return listener


def _remove_stale_socket(path: Path) -> None:
    """Remove the socket of a runner that was killed, never of one that still listens."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.settimeout(1.0)
        try:
            client.connect(str(path))
        except ConnectionRefusedError:
            path.unlink()
            return
    raise SettingsError(f"runner.socket {str(path)!r}: another runner listens there; stop it, or set another one")
