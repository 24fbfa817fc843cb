"""The socket of a runner: who may come in, and what they ask for. One request a connection, then
nothing."""

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

ASK_S: Final = 10.0
"""How long a visitor may take to say what it wants."""

READ_S: Final = 1.0
VISITORS: Final = 128
_READ_BYTES: Final = 256 * 1024

log = logger("runner")


class Visitor:
    """One connection, until its command is started or it is answered."""

    def __init__(self, link: socket.socket) -> None:
        self.link = link
        self.gone = False
        """Whether there is nobody any more to run a command for."""
        self.answered = False
        self.bodies = frames.Bodies(frames.REQUEST_LIMIT_BYTES)
        self.asked = False
        self.until = time.monotonic() + ASK_S


class Doorway:
    """Listens on a Unix socket. The own user may come in, and `worker_uid`; then the socket is for
    its group, too. Raises SettingsError when the socket cannot be had."""

    def __init__(self, path: Path, *, worker_uid: int | None) -> None:
        self.selector = selectors.DefaultSelector()
        self._path = path
        self._welcome = {os.getuid(), os.getuid() if worker_uid is None else worker_uid}
        self._visitors: set[Visitor] = set()
        self._listening = _listener(path, 0o600 if worker_uid is None else 0o660)
        self._inode = path.stat().st_ino
        self.selector.register(self._listening, selectors.EVENT_READ, self)

    def wait(self, seconds: float) -> list[tuple[Visitor, frames.Request]]:
        """What visitors ask for, as soon as one does, or something else wakes the selector."""
        asked: list[tuple[Visitor, frames.Request]] = []
        for key, _ in self.selector.select(seconds):
            if key.data is self:
                self._let_in()
            elif isinstance(key.data, Visitor):
                asked += [(key.data, request) for request in self._hear(key.data)]
        now = time.monotonic()
        for visitor in [one for one in self._visitors if one.until < now]:
            if visitor.answered:
                self._leave(visitor)
            elif not visitor.asked:
                self.answer(visitor, frames.Refused("nothing was asked for"))
        return asked

    def answer(self, visitor: Visitor, answer: frames.Answer) -> None:
        """The last word to a visitor, who is then given a moment to read it. It is short: the
        socket's buffer takes it.

        Closed at once, a socket from which not all was read would throw it away."""
        with contextlib.suppress(OSError):
            visitor.link.send(frames.encode(answer))
            visitor.link.shutdown(socket.SHUT_WR)
        visitor.answered = visitor.gone = True
        visitor.until = time.monotonic() + READ_S

    def hand_over(self, visitor: Visitor) -> None:
        """Another process talks to the visitor from here on."""
        self._leave(visitor)

    def leave_all_but(self, visitor: Visitor) -> socket.socket:
        """In a forked process: keep nothing but this connection. The selector of the parent is not
        touched."""
        self.selector.close()
        self._listening.close()
        for other in self._visitors - {visitor}:
            other.link.close()
        return visitor.link

    def close(self) -> None:
        """Listen no more, and let everybody go."""
        for visitor in list(self._visitors):
            self.answer(visitor, frames.Refused("the runner stops"))
            self._leave(visitor)
        self._listening.close()
        self.selector.close()
        with contextlib.suppress(OSError):
            if self._path.lstat().st_ino == self._inode:
                self._path.unlink()

    def _let_in(self) -> None:
        try:
            link, _ = self._listening.accept()
        except OSError as exc:
            if exc.errno in (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS):
                log.error("no connection taken", error=exc.strerror)
                time.sleep(0.01)  # else this would be asked again at once, and for ever
            return
        link.setblocking(False)
        visitor = Visitor(link)
        self._visitors.add(visitor)
        self.selector.register(link, selectors.EVENT_READ, visitor)
        _, uid, _ = struct.unpack("iII", link.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
        if uid not in self._welcome:
            log.warning("stranger refused", uid=uid)
            self.answer(visitor, frames.Refused(f"user {uid} is not the worker; set runner.worker_uid"))
        elif len(self._visitors) > VISITORS:
            self.answer(visitor, frames.Refused("too many connections; try again later"))

    def _hear(self, visitor: Visitor) -> Iterator[frames.Request]:
        try:
            data = visitor.link.recv(_READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._leave(visitor)
            return
        if visitor.answered:
            return
        try:
            for body in visitor.bodies.feed(data):
                if visitor.asked:
                    raise frames.BadFrame("a second request on one connection")
                visitor.asked = True
                yield frames.request(body)
        except frames.BadFrame as exc:
            log.warning("bad frame refused", error=str(exc))
            self.answer(visitor, frames.Refused(str(exc)))

    def _leave(self, visitor: Visitor) -> None:
        visitor.gone = True
        if visitor in self._visitors:
            self._visitors.discard(visitor)
            self.selector.unregister(visitor.link)
            visitor.link.close()


def _listener(path: Path, mode: int) -> socket.socket:
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists() and stat.S_ISSOCK(path.lstat().st_mode):
            _must_be_stale(path)
        before = os.umask(0o777 & ~mode)
        try:
            listening.bind(str(path))
        finally:
            os.umask(before)
        listening.listen(VISITORS)
    except OSError as exc:
        listening.close()
        why = "its path is too long" if "too long" in str(exc) else exc.strerror
        raise SettingsError(f"runner.socket {str(path)!r} cannot be had: {why}; set another one") from None
    listening.setblocking(False)
    return listening


def _must_be_stale(path: Path) -> None:
    """Take the name from a runner that was killed, never from one that listens."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asking:
        asking.settimeout(1.0)
        try:
            asking.connect(str(path))
        except ConnectionRefusedError:
            path.unlink()
            return
    raise SettingsError(f"runner.socket {str(path)!r}: another runner listens there; stop it, or set another one")
