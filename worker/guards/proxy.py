"""An HTTP proxy that leads a command to checked addresses and nowhere else.

The command names a host, by CONNECT or by a plain `http://` request. The proxy looks the name up
once, checks every address it has, and connects to one of those, exactly as web_fetch does; where
`[network]` names a proxy, it asks that one after the same checks. What is sent through a tunnel is
not read. Its state is that of one command: connections and bytes."""

from __future__ import annotations

import asyncio
import re
import socket
from typing import Final
from urllib.parse import urlsplit

import msgspec

from shared.errors import ToolFailed
from shared.network.outgoing import current
from worker.guards.addresses import Address, WebPolicy, WebTarget, parse_target
from worker.guards.fetch import CONNECT_S, LookUp, resolve_target

HEAD_BYTES: Final = 32 * 1024
HEAD_S: Final = 10.0
_PIECE_BYTES: Final = 64 * 1024
_BUFFER_BYTES: Final = 256 * 1024  # of a connection to a server: the kernel would allow megabytes
_PAUSE_S: Final = 0.1

_REQUEST: Final = re.compile(r"([A-Z]{1,20}) ([!-~]+) HTTP/1\.[01]")
_HEADER: Final = re.compile(r"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[^\r\n\0]*")
_AUTHORITY: Final = re.compile(r"[^/?#\\]+:[0-9]{1,5}")
# Headers for the proxy alone, and two that it writes itself.
_NOT_FORWARDED: Final = ("connection", "proxy-connection", "keep-alive", "te", "trailer", "upgrade", "host")
_HIDDEN: Final = re.compile(r"[^ -~]")


class ProxyLimits(msgspec.Struct, frozen=True):
    """Limits of one command: connections open at once and in all, and bytes both ways together."""

    at_once: int = 32
    connections: int = 2000
    bytes: int = 512 * 1024 * 1024


PROXY_LIMITS: Final = ProxyLimits()


class CommandProxy:
    """The proxy of one command."""

    def __init__(self, policy: WebPolicy, look_up: LookUp, limits: ProxyLimits = PROXY_LIMITS) -> None:
        self._policy = policy
        self._look_up = look_up
        self._left = limits
        self._slots = asyncio.Semaphore(limits.at_once)

    async def serve(self, listener: socket.socket) -> None:
        """Accept and serve until cancelled; then every connection is closed."""
        listener.setblocking(False)
        async with asyncio.TaskGroup() as group:
            while True:
                await self._slots.acquire()  # more wait in the kernel's queue, which is short
                try:
                    client, _ = await asyncio.get_running_loop().sock_accept(listener)
                except OSError:  # no handles left, or a client that is already gone
                    self._slots.release()
                    await asyncio.sleep(_PAUSE_S)
                    continue
                group.create_task(self._serve_client(client))

    async def _serve_client(self, client: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        try:
            with client:
                client.setblocking(False)
                try:
                    async with asyncio.timeout(HEAD_S):
                        head, rest = await _read_head(client)
                    target, forwarded = _parse_request(head, self._policy)
                    self._spend(connections=1)
                    server, forwarded = await self._connect(target, forwarded)
                except ToolFailed as exc:
                    # The reason is in the status line, too: for CONNECT programs show only that.
                    why = _HIDDEN.sub("?", str(exc))
                    head = f"HTTP/1.1 403 {why}\r\nContent-Length: {len(why) + 1}\r\nConnection: close\r\n\r\n{why}\n"
                    return await loop.sock_sendall(client, head.encode())
                with server:
                    if forwarded:
                        await loop.sock_sendall(server, forwarded + rest)
                    else:
                        await loop.sock_sendall(client, b"HTTP/1.1 200 Connection established\r\n\r\n")
                        await loop.sock_sendall(server, rest)
                    async with asyncio.TaskGroup() as group:
                        group.create_task(self._pipe(client, server))
                        group.create_task(self._pipe(server, client))
        except* (OSError, ToolFailed):  # either side broke it off, was too slow, or the bytes are spent
            pass
        finally:
            self._slots.release()

    async def _connect(self, target: WebTarget, forwarded: bytes) -> tuple[socket.socket, bytes]:
        """Return a connection to one of the target's checked addresses, or through the proxy of
        this network, and the head to send over it. Raises ToolFailed."""
        proxy = current().proxy_for(target.url)
        known = proxy is None
        look_up = self._look_up
        addresses = await resolve_target(target, self._policy, look_up, CONNECT_S, known=known)
        if proxy is not None:
            # Imported here: few installations have such a proxy.
            from shared.network.tunnel import open_request, open_tunnel

            try:
                if forwarded:
                    return await open_request(proxy, target.url, forwarded, CONNECT_S)
                return await open_tunnel(proxy, target.host, target.port, CONNECT_S), b""
            except OSError:  # a timeout is one
                raise ToolFailed(f"the proxy of this network makes no connection to {target.host!r}") from None
        for address in addresses:
            if (server := await _connect_to(address, target.port)) is not None:
                return server, forwarded
        raise ToolFailed(f"{target.host!r} cannot be reached on port {target.port}")

    async def _pipe(self, source: socket.socket, sink: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while data := await loop.sock_recv(source, _PIECE_BYTES):
            self._spend(bytes=len(data))
            await loop.sock_sendall(sink, data)
            # While both sides are quick, neither of the two above gives up the event loop.
            await asyncio.sleep(0)
        sink.shutdown(socket.SHUT_WR)

    def _spend(self, *, connections: int = 0, bytes: int = 0) -> None:
        left = ProxyLimits(0, self._left.connections - connections, self._left.bytes - bytes)
        if left.connections < 0 or left.bytes < 0:
            raise ToolFailed("the command has used up its connections or its bytes; let it do less")
        self._left = left


async def _read_head(client: socket.socket) -> tuple[str, bytes]:
    """Return the head of a request, and what was read beyond it."""
    read = b""
    while b"\r\n\r\n" not in read:
        if len(read) > HEAD_BYTES:
            raise ToolFailed("the head of the request is too long")
        if not (data := await asyncio.get_running_loop().sock_recv(client, HEAD_BYTES)):
            raise ConnectionError
        read += data
    head, _, rest = read.partition(b"\r\n\r\n")
    return head.decode("latin-1"), rest


def _parse_request(head: str, policy: WebPolicy) -> tuple[WebTarget, bytes]:
    """Return the target, and the head to send to it (for CONNECT none). Raises ToolFailed."""
    first, *headers = head.split("\r\n")
    request = _REQUEST.fullmatch(first)
    names = [one[1].lower() if (one := _HEADER.fullmatch(line)) else "" for line in headers]
    if request is None or "" in names:
        raise ToolFailed("this is not a request that an HTTP proxy understands")
    method, url = request.groups()
    if method == "CONNECT":
        if not _AUTHORITY.fullmatch(url):
            raise ToolFailed("CONNECT needs a host and a port")
        return parse_target(f"https://{url}/", policy), b""
    if not url.lower().startswith("http://"):
        raise ToolFailed("only http:// can be requested without CONNECT")
    target = parse_target(url, policy)
    parts = urlsplit(target.url)
    path = f"{parts.path}?{parts.query}" if parts.query else parts.path
    # One request a connection: a second one on it could name another host, and nobody would look.
    lines = [f"{method} {path} HTTP/1.1", f"Host: {parts.netloc}", "Connection: close"]
    kept = zip(names, headers, strict=True)
    lines += [line for name, line in kept if name not in _NOT_FORWARDED and not name.startswith("proxy-")]
    return target, "\r\n".join([*lines, "", ""]).encode("latin-1")


async def _connect_to(address: Address, port: int) -> socket.socket | None:
    server = socket.socket(socket.AF_INET if address.version == 4 else socket.AF_INET6)
    server.setblocking(False)
    for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
        server.setsockopt(socket.SOL_SOCKET, option, _BUFFER_BYTES)
    try:
        async with asyncio.timeout(CONNECT_S):
            await asyncio.get_running_loop().sock_connect(server, (str(address), port))
    except BaseException as exc:
        server.close()
        if isinstance(exc, OSError):  # a timeout is one
            return None
        raise
    return server
