"""Minimal Redis client on the standard library: for the guardian, which must stay small and never
hang, and for shell completion, which must be instant. It speaks RESP2, see
https://redis.io/docs/latest/develop/reference/protocol-spec/."""

from __future__ import annotations

import socket
from contextlib import closing, suppress
from typing import IO, Any, Final

from shared.store import keys
from shared.store.client.address import Address, Tls, read_address, read_moved

TIMEOUT_S: Final = 2.0


class RespError(Exception):
    """Redis answered with an error; the text is its own."""


class RespConnection:
    """One blocking connection. Raises OSError without Redis; no wait is over `timeout_s`."""

    def __init__(self, url: str | Address, *, timeout_s: float = TIMEOUT_S) -> None:
        address = (read_address(url) if isinstance(url, str) else url).with_login()
        if address.sentinels:
            address = _primary(address, timeout_s)
        if address.nodes:
            address = _owner(address, timeout_s)
        if address.path:
            self._socket = socket.socket(socket.AF_UNIX)
            self._socket.settimeout(timeout_s)
            self._socket.connect(address.path)
        else:
            self._socket = socket.create_connection((address.host, address.port), timeout_s)
            if address.tls is not None:
                self._encrypt(address.host, address.tls)
        self._lines: IO[bytes] = self._socket.makefile("rb")
        try:
            if address.password:
                user = [address.user] if address.user else []
                self.command("AUTH", *user, address.password)
            if address.db:
                self.command("SELECT", str(address.db))
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

    def _encrypt(self, host: str, tls: Tls) -> None:
        """Start TLS. Raises ssl.SSLError, an OSError, if the certificate is not that of `host`."""
        plain = self._socket
        try:
            self._socket = tls.context().wrap_socket(plain, server_hostname=host)
        except OSError:
            plain.close()
            raise

    def _answer(self) -> Any:
        line = self._lines.readline()
        if not line.endswith(b"\r\n"):
            raise ConnectionResetError("Redis closed the connection")
        kind = line[:1]
        rest = line[1:-2]
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


def _primary(address: Address, timeout_s: float) -> Address:
    """Ask the Sentinels of `address` one after the other until a majority of them names the same
    primary. Raises OSError if there is none."""
    votes: dict[tuple[str, int], int] = {}
    for sentinel in address.sentinels:
        with suppress(OSError, RespError):
            # All of them may take as long as one connection: the guardian must never hang.
            connection = RespConnection(sentinel, timeout_s=timeout_s / len(address.sentinels))
            with closing(connection):
                answer = connection.command("SENTINEL", "GET-MASTER-ADDR-BY-NAME", address.service)
            if not isinstance(answer, list):
                continue  # it does not know the service
            place = answer[0].decode(), int(answer[1])
            votes[place] = votes.get(place, 0) + 1
            if votes[place] * 2 > len(address.sentinels):
                return address._replace(host=place[0], port=place[1])
    raise OSError(f"no majority of the Sentinels names a primary of {address.service!r}")


def _owner(address: Address, timeout_s: float) -> Address:
    """Ask the nodes of `address` one after the other, until one knows which primary has our slot.
    Raises OSError if none does. One that is out of date leads to a server that refuses; the next
    call asks anew."""
    for node in address.nodes:
        with suppress(OSError):
            connection = RespConnection(node, timeout_s=timeout_s / len(address.nodes))
            with closing(connection):
                try:
                    connection.command("EXISTS", keys.NO_KEY)
                except RespError as reply:
                    if (place := read_moved(str(reply), node.host)) is None:
                        continue
                    return address._replace(nodes=(), host=place[0], port=place[1])
            return node.with_login()
    raise OSError(f"no node of the cluster knows a primary for slot {keys.SLOT}")
