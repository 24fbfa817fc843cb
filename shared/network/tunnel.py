"""Connections through a proxy for what has a socket and no HTTP library: tunnels, by CONNECT of an
HTTP proxy or by SOCKS, and a single plain request.

CONNECT is our own: python-socks reads one piece as the proxy's whole reply, and drops what comes in
the same piece. Of a mail server, which speaks first, that is the greeting."""

from __future__ import annotations

import asyncio
import base64
import re
import socket
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from shared.settings.sections.network import SOCKS

HEAD_BYTES: Final = 16 * 1024
_END: Final = b"\r\n\r\n"
_REPLY: Final = re.compile(rb"HTTP/1\.[01] 2\d\d[ \r]")


async def open_tunnel(proxy: str, host: str, port: int, within_s: float) -> socket.socket:
    """Return a non-blocking socket that a proxy has connected to a host, which it looks up itself.
    Raises OSError, also when the proxy refuses."""
    if urlsplit(proxy).scheme in SOCKS:
        return await _socks_tunnel(proxy, host, port, within_s)
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(within_s):
        connection = await _connect(proxy)
        try:
            await loop.sock_sendall(connection, _connect_request(proxy, host, port))
            head = b""
            while not head.endswith(_END):
                # One byte at a time: what follows the head is the host's already.
                _check_head(head, piece := await loop.sock_recv(connection, 1))
                head += piece
            _check_reply(head)
        except BaseException:
            connection.close()
            raise
    return connection


def open_blocking_tunnel(proxy: str, host: str, port: int, within_s: float) -> socket.socket:
    """Return a socket with a timeout of `within_s` that a proxy has connected to a host. Raises
    OSError."""
    parts = urlsplit(proxy)
    if parts.scheme in SOCKS:
        return _blocking_socks_tunnel(proxy, host, port, within_s)
    connection = socket.create_connection((parts.hostname or "", parts.port or 0), within_s)
    try:
        connection.sendall(_connect_request(proxy, host, port))
        head = b""
        while not head.endswith(_END):
            _check_head(head, piece := connection.recv(1))
            head += piece
        _check_reply(head)
    except BaseException:
        connection.close()
        raise
    return connection


async def open_request(proxy: str, url: str, head: bytes, within_s: float) -> tuple[socket.socket, bytes]:
    """Return a non-blocking socket to an HTTP proxy, and the head that asks it for a plain
    `http://` URL: many allow CONNECT to port 443 alone. `head` begins with a request line that
    names a path. Raises OSError."""
    async with asyncio.timeout(within_s):
        connection = await _connect(proxy)
    method, _, rest = head.partition(b" ")
    version, _, headers = rest.partition(b" ")[2].partition(b"\r\n")
    request = b" ".join((method, url.encode(), version))
    return connection, b"\r\n".join([request, *_login(proxy), headers])


async def _connect(proxy: str) -> socket.socket:
    """Return a non-blocking socket to the first address of a proxy that answers. Raises OSError."""
    parts = urlsplit(proxy)
    loop = asyncio.get_running_loop()
    last = OSError("the proxy has no address")
    found = await loop.getaddrinfo(parts.hostname, parts.port, type=socket.SOCK_STREAM)
    for family, kind, number, _, address in found:
        connection = socket.socket(family, kind, number)
        connection.setblocking(False)
        try:
            await loop.sock_connect(connection, address)
        except OSError as exc:
            connection.close()
            last = exc
        except BaseException:
            connection.close()
            raise
        else:
            return connection
    raise last


def _connect_request(proxy: str, host: str, port: int) -> bytes:
    name = f"[{host}]".encode() if ":" in host else host.encode("idna")
    where = name + f":{port}".encode()
    lines = [b"CONNECT " + where + b" HTTP/1.1", b"Host: " + where, *_login(proxy)]
    return b"\r\n".join([*lines, b"", b""])


def _login(proxy: str) -> list[bytes]:
    """Return the header with the user and password of a proxy's address, if it has any."""
    parts = urlsplit(proxy)
    if parts.username is None:
        return []
    pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
    return [b"Proxy-Authorization: Basic " + base64.b64encode(pair.encode())]


def _check_head(head: bytes, piece: bytes) -> None:
    if not piece or len(head) > HEAD_BYTES:
        raise ConnectionError("the proxy gave no valid answer")


def _check_reply(head: bytes) -> None:
    if not _REPLY.match(head):
        status = head[9:12].decode("latin-1")
        raise ConnectionError(f"the proxy refused the connection (status {status!r})")


async def _socks_tunnel(proxy: str, host: str, port: int, within_s: float) -> socket.socket:
    from python_socks import ProxyConnectionError, ProxyError, ProxyTimeoutError
    from python_socks.async_.asyncio import Proxy

    try:
        way: Any = Proxy.from_url(_socks_url(proxy), rdns=True)
        tunnel: socket.socket = await way.connect(host, port, timeout=within_s)
    except (ProxyConnectionError, ProxyError, ProxyTimeoutError) as exc:
        raise ConnectionError(f"the SOCKS proxy made no connection: {type(exc).__name__}") from exc
    return tunnel


def _blocking_socks_tunnel(proxy: str, host: str, port: int, within_s: float) -> socket.socket:
    from python_socks import ProxyConnectionError, ProxyError, ProxyTimeoutError
    from python_socks.sync import Proxy

    try:
        way = Proxy.from_url(_socks_url(proxy), rdns=True)
        tunnel: socket.socket = way.connect(host, port, timeout=within_s)
    except (ProxyConnectionError, ProxyError, ProxyTimeoutError) as exc:
        raise ConnectionError(f"the SOCKS proxy made no connection: {type(exc).__name__}") from exc
    tunnel.settimeout(within_s)
    return tunnel


def _socks_url(proxy: str) -> str:
    """Return the address with a scheme that the library knows: names are always looked up there."""
    return proxy.replace("socks5h://", "socks5://", 1)
