"""The proxy of a building: HTTP (CONNECT and plain requests) and SOCKS5 on one port of loopback. Names lead where a
test says, so that a client which looks one up itself gets nowhere."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import socket
import struct
from collections.abc import AsyncIterator, Iterator
from contextvars import ContextVar
from typing import Any

import pytest

from shared.network import outgoing
from shared.settings import ProxyUrl
from shared.settings.sections.network import NetworkSettings, parse_no_proxy
from tests.helpers.stream_server import stream_server

_SOCKS5 = 5
_of_a_proxy = ContextVar("of a proxy", default=False)


class EgressProxy:
    """`hosts` are the ports on loopback of the names it knows; `asked` is what it was asked for, such as `CONNECT
    api.example:443`, `GET http://api.example/` or `SOCKS api.example:443`; `logins` are the users and passwords."""

    def __init__(self) -> None:
        self.port = 0
        self.hosts: dict[str, int] = {}
        self.asked: list[str] = []
        self.logins: list[str] = []

    def url(self, scheme: str = "http", login: str = "") -> str:
        """Its address as a setting."""
        return f"{scheme}://{login}{'@' if login else ''}127.0.0.1:{self.port}"

    def has_asked(self, part: str) -> bool:
        """Whether it was asked for something with this in it."""
        return any(part in one for one in self.asked)

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError, OSError):
            if (first := await reader.readexactly(1))[0] == _SOCKS5:
                await self._serve_socks(reader, writer)
            else:
                await self._serve_http(first, reader, writer)
        writer.close()

    async def _serve_http(self, first: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = first + await reader.readuntil(b"\r\n\r\n")
        lines = head.decode("latin-1").split("\r\n")
        method, target, version = lines[0].split(" ")
        self.asked.append(f"{method} {target}")
        for line in lines:
            name, _, value = line.partition(": ")
            if name.lower() == "proxy-authorization":
                self.logins.append(base64.b64decode(value.removeprefix("Basic ")).decode())
        if method == "CONNECT":
            host, _, port = target.rpartition(":")
            path = ""
        else:
            host, _, path = target.partition("://")[2].partition("/")
            host, _, port = host.partition(":")
        server = await self._connect(host.strip("[]"), int(port or 80))
        if server is None:
            writer.write(b"HTTP/1.1 502 No such host\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
            return
        if method == "CONNECT":
            writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        else:
            kept = [line for line in lines[1:] if not line.lower().startswith("proxy-")]
            server[1].write("\r\n".join([f"{method} /{path} {version}", *kept]).encode("latin-1"))
        await pipe_both(reader, writer, *server)

    async def _serve_socks(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        methods = await reader.readexactly((await reader.readexactly(1))[0])
        if 2 in methods:
            writer.write(b"\x05\x02")
            user = await reader.readexactly((await reader.readexactly(2))[1])
            password = await reader.readexactly((await reader.readexactly(1))[0])
            self.logins.append(f"{user.decode()}:{password.decode()}")
            writer.write(b"\x01\x00")
        else:
            writer.write(b"\x05\x00")
        kind = (await reader.readexactly(4))[3]
        if kind == 3:
            host = (await reader.readexactly((await reader.readexactly(1))[0])).decode()
        else:
            host = ".".join(map(str, await reader.readexactly(4)))
        port = struct.unpack("!H", await reader.readexactly(2))[0]
        self.asked.append(f"SOCKS {host}:{port}")
        server = await self._connect(host, port)
        writer.write(bytes((5, 0 if server else 4, 0, 1, 0, 0, 0, 0, 0, 0)))
        if server is not None:
            await pipe_both(reader, writer, *server)

    async def _connect(self, host: str, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter] | None:
        if host != "127.0.0.1" and host not in self.hosts:
            return None
        _of_a_proxy.set(True)
        return await asyncio.open_connection("127.0.0.1", self.hosts.get(host, port))


async def pipe_both(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    far_reader: asyncio.StreamReader,
    far_writer: asyncio.StreamWriter,
) -> None:
    """Pass on what comes from either side, until one ends."""

    async def pipe(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        while data := await source.read(64 * 1024):
            sink.write(data)
            await sink.drain()
        sink.close()

    try:
        await asyncio.gather(pipe(reader, far_writer), pipe(far_reader, writer))
    finally:
        far_writer.close()


@contextlib.asynccontextmanager
async def egress_proxy() -> AsyncIterator[EgressProxy]:
    """A proxy that runs."""
    proxy = EgressProxy()
    async with stream_server(proxy.handle) as proxy.port:
        yield proxy


def connected_ports(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The ports that this process connects to from now on, but for the connections that a proxy in here makes."""
    ports: list[int] = []
    connect = socket.socket.connect

    def noting(self: socket.socket, address: Any) -> None:
        if isinstance(address, tuple) and not _of_a_proxy.get():
            ports.append(address[1])
        return connect(self, address)

    monkeypatch.setattr(socket.socket, "connect", noting)
    return ports


@contextlib.contextmanager
def outgoing_by(settings: NetworkSettings) -> Iterator[None]:
    """These rules for the calls of this process, without its environment."""
    before = outgoing.current()
    outgoing._current = outgoing.Outgoing.from_settings(settings)
    try:
        yield
    finally:
        outgoing._current = before


@contextlib.contextmanager
def behind(proxy: str, *no_proxy: str) -> Iterator[None]:
    """Everything through this proxy, also what is on loopback, but for these."""
    for entry in no_proxy:
        parse_no_proxy(entry)
    with outgoing_by(NetworkSettings(proxy=ProxyUrl(proxy), no_proxy=no_proxy)):
        yield
