"""A real Valkey for tests."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import IO
from urllib.parse import urlsplit

from console.up.supervisor import Reaper
from shared.embedded import EmbeddedValkey


def fresh(server: EmbeddedValkey) -> str:
    """The address of `server`, running and with nothing in it: no keys, no scripts, no functions."""
    if not server.running:
        server.start()
    command(server.url, "FLUSHALL", "SYNC")
    command(server.url, "SCRIPT", "FLUSH", "SYNC")
    return server.url


@contextlib.contextmanager
def another(folder: Path) -> Iterator[str]:
    """The address of a server of one scene, for scenes that are played at the same time."""
    folder.mkdir(parents=True)
    reaper = Reaper()  # no server outlives a run that was killed
    server = EmbeddedValkey(folder, fsync="no", spawned=lambda pid: reaper.watch(step=0, pid=pid))
    server.start()
    try:
        yield server.url
    finally:
        server.stop()
        reaper.close()


def command(url: str, *words: str, within_s: float = 10) -> str:
    """Send one command over a plain socket and return its answer as text, an array line by line.

    Raises AssertionError with the server's text when it answers with an error, TimeoutError when it does not.
    """
    parts = urlsplit(url)
    assert parts.hostname is not None
    assert parts.port is not None
    with socket.create_connection((parts.hostname, parts.port), timeout=within_s) as conn, conn.makefile("rb") as lines:
        if parts.password:
            _ask(conn, "AUTH", parts.password)
            _answer(lines)
        _ask(conn, *words)
        return _answer(lines)


def _ask(conn: socket.socket, *words: str) -> None:
    raw = [word.encode() for word in words]
    conn.sendall(b"*%d\r\n" % len(raw) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in raw))


def _answer(lines: IO[bytes]) -> str:
    line = lines.readline()
    assert not line.startswith(b"-"), f"Valkey refused: {line.decode().strip()}"
    assert line[:1] in b"+:$*", f"an answer of a kind this helper does not read: {line!r}"
    if line.startswith(b"*"):
        return "\n".join(_answer(lines) for _ in range(int(line[1:])))
    if line.startswith(b"$"):
        size = int(line[1:])
        return lines.read(size + 2)[:size].decode() if size >= 0 else ""
    return line[1:].strip().decode()
