"""Minimal Redis client on the standard library: for the guardian, which must stay small and never
hang, and for shell completion, which must be instant. It speaks RESP2, see
https://redis.io/docs/latest/develop/reference/protocol-spec/."""

from __future__ import annotations

import socket
from typing import IO, Any, Final
from urllib.parse import parse_qs, unquote, urlsplit

TIMEOUT_S: Final = 2.0


class RespError(Exception):
    """Redis answered with an error; the text is its own."""


class RespConnection:
    """One blocking connection. Raises OSError without Redis; no wait is over `timeout_s`."""

    def __init__(self, url: str, *, timeout_s: float = TIMEOUT_S) -> None:
        parts = urlsplit(url)
        if parts.scheme == "unix":
            self._socket = socket.socket(socket.AF_UNIX)
            self._socket.settimeout(timeout_s)
            self._socket.connect(unquote(parts.path))
            database = parse_qs(parts.query).get("db", ["0"])[0]
        else:
            address = parts.hostname or "127.0.0.1", parts.port or 6379
            self._socket = socket.create_connection(address, timeout_s)
            if parts.scheme == "rediss":
                self._encrypt(parts.hostname, parse_qs(parts.query).get("ssl_ca_certs", [None])[0])
            database = parts.path.strip("/") or "0"
        self._lines: IO[bytes] = self._socket.makefile("rb")
        try:
            if parts.password:
                user = [unquote(parts.username)] if parts.username else []
                self.command("AUTH", *user, unquote(parts.password))
            if database != "0":
                self.command("SELECT", database)
        except (OSError, RespError):
            self.close()
            raise

    def command(self, *words: str | bytes) -> Any:
        """Send one command and return its answer: bytes, int, None, or a list of such. Raises
        RespError, OSError."""
        # A command is an array of bulk strings.
        raw = [word.encode() if isinstance(word, str) else word for word in words]
        strings = b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in raw)
        self._socket.sendall(b"*%d\r\n" % len(raw) + strings)
        return self._answer()

    def close(self) -> None:
        """Close the connection."""
        self._lines.close()
        self._socket.close()

    def _encrypt(self, host: str | None, ca_file: str | None) -> None:
        """Start TLS. Raises ssl.SSLError, an OSError, if the certificate is not that of `host`."""
        import ssl  # 5 MB that a guardian without TLS does not need

        plain = self._socket
        try:
            self._socket = ssl.create_default_context(cafile=ca_file).wrap_socket(plain, server_hostname=host)
        except OSError:
            plain.close()
            raise

    def _answer(self) -> Any:
        line = self._lines.readline()
        if not line.endswith(b"\r\n"):
            raise ConnectionResetError("Redis closed the connection")
        kind, rest = line[:1], line[1:-2]
        if kind == b"+":
            return rest
        if kind == b"-":
            raise RespError(rest.decode(errors="replace"))
        if kind == b":":
            return int(rest)
        if kind == b"$":
            size = int(rest)
            return None if size < 0 else self._lines.read(size + 2)[:size]
        if kind == b"*":
            return None if int(rest) < 0 else [self._answer() for _ in range(int(rest))]
        raise RespError(f"an answer of an unknown kind: {line[:40]!r}")
