"""The proxy of a command: hostile requests over real connections on loopback, which the operator's list allows."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator

import pytest

from shared.guards.addresses import WebPolicy
from tests.helpers.stream_server import stream_server
from tests.helpers.wait import eventually
from tests.helpers.web_server import WebServer, reply, web_server
from tests.shared.guards.test_fetch import Names
from worker.guards.proxy import HEAD_BYTES, PROXY_LIMITS, CommandProxy, ProxyLimits


@pytest.fixture
async def web() -> AsyncIterator[WebServer]:
    async with web_server() as server:
        server.pages["/page"] = reply("the page")
        yield server


@contextlib.asynccontextmanager
async def proxy(*allow: str, names: Names | None = None, limits: ProxyLimits = PROXY_LIMITS) -> AsyncIterator[int]:
    """The port of a proxy with these exceptions."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        made = CommandProxy(WebPolicy.from_settings(allow), names or Names(), limits)
        serving = asyncio.create_task(made.serve(listener))
        yield listener.getsockname()[1]
        serving.cancel()
        await asyncio.wait({serving})
        assert serving.cancelled(), serving.exception()


async def exchange(port: int, *pieces: bytes) -> bytes:
    """All that comes back for these bytes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
        return await reader.read()
    except ConnectionResetError:
        return b""
    finally:
        writer.close()


async def test_a_plain_request_reaches_an_allowed_host_and_says_no_more_than_it_must(web: WebServer) -> None:
    """The host that is named to the server is the one that was checked; headers for the proxy stay here."""
    async with proxy(f"127.0.0.1:{web.port}") as port:
        request = (
            f"GET {web.url('/page?q=1')} HTTP/1.1\r\nHost: inside.example\r\nProxy-Authorization: x\r\nX-Own: 1\r\n"
        )
        answer = await exchange(port, request.encode()[:20], request.encode()[20:] + b"Connection: keep-alive\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert answer.endswith(b"the page")
    (asked,) = web.asked
    assert (asked.method, asked.target) == ("GET", "/page?q=1")
    assert asked.headers == {"host": f"127.0.0.1:{web.port}", "connection": "close", "x-own": "1"}


async def test_a_tunnel_carries_bytes_both_ways_and_the_end_of_each(web: WebServer) -> None:
    """What came with the request goes through it, too."""
    async with proxy(f"127.0.0.1:{web.port}") as port:
        head = f"CONNECT 127.0.0.1:{web.port} HTTP/1.1\r\n\r\n".encode()
        answer = await exchange(port, head + b"GET /page HTTP/1.1\r\n", b"Host: x\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 200 Connection established\r\n\r\nHTTP/1.1 200 ")
    assert answer.endswith(b"the page")


BLOCKED = {
    "127.0.0.1": "loopback",
    "[::1]": "loopback",
    "169.254.169.254": "cloud metadata",
    "168.63.129.16": "cloud metadata",
    "[fd00:ec2::254]": "cloud metadata",
    "10.0.0.1": "private",
    "192.168.1.1": "private",
    "100.64.0.1": "carrier-grade NAT",
    "0.0.0.0": "unspecified",
    "[::ffff:127.0.0.1]": "IPv4-mapped",
    "[64:ff9b::7f00:1]": "NAT64",
    "0x7f.1": "loopback",
    "2130706433": "loopback",
    "redis.internal": "a name of a local network",
    "localhost": "a name of a local network",
    "inside.example": "does not lead to the public web",
    "both.example": "does not lead to the public web",
    "nowhere.example": "was not found",
}


@pytest.mark.parametrize("host", BLOCKED)
async def test_what_web_fetch_does_not_reach_a_command_does_not_reach(web: WebServer, host: str) -> None:
    """In a tunnel and in a plain request alike; the reason is where programs show it."""
    names = Names(inside_example=[["127.0.0.1"]], both_example=[["2606:4700::1", "10.0.0.1"]])
    async with proxy("127.0.0.1:1", names=names) as port:
        for request in (f"CONNECT {host}:443", f"CONNECT {host}:80", f"GET http://{host}/page"):
            status, _, body = (await exchange(port, f"{request} HTTP/1.1\r\n\r\n".encode())).partition(b"\r\n")
            assert status.startswith(b"HTTP/1.1 403 "), request
            assert BLOCKED[host].encode() in status
            assert BLOCKED[host].encode() in body
    assert web.asked == []


async def test_other_ports_of_an_allowed_host_stay_closed(web: WebServer) -> None:
    """An entry with a port opens that one; Redis and metrics beside it stay where they are."""
    async with proxy("127.0.0.1:1", "open.example:2", names=Names(open_example=[["127.0.0.1"]])) as port:
        for host in ("127.0.0.1", "open.example"):
            answer = await exchange(port, f"CONNECT {host}:{web.port} HTTP/1.1\r\n\r\n".encode())
            assert answer.startswith(b"HTTP/1.1 403 blocked port"), answer


async def test_a_name_is_looked_up_once_and_connected_to_as_it_was_checked(web: WebServer) -> None:
    """A second answer, which leads elsewhere, is never asked for."""
    names = Names(open_example=[["127.0.0.1"], ["127.0.0.2"]])
    async with proxy(f"open.example:{web.port}", names=names) as port:
        answer = await exchange(port, f"GET {web.url('/page', 'open.example')} HTTP/1.1\r\n\r\n".encode())
    assert answer.endswith(b"the page")
    assert names.asked == ["open.example"]


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"GET /page HTTP/1.1\r\n\r\n",
        b"GET https://127.0.0.1/ HTTP/1.1\r\n\r\n",
        b"GET ftp://127.0.0.1/ HTTP/1.1\r\n\r\n",
        b"CONNECT 127.0.0.1 HTTP/1.1\r\n\r\n",
        b"CONNECT 127.0.0.1:80/../x:80 HTTP/1.1\r\n\r\n",
        b"CONNECT user@127.0.0.1:80 HTTP/1.1\r\n\r\n",
        b"CONNECT [::1%lo]:80 HTTP/1.1\r\n\r\n",
        b"CONNECT 127.0.0.1:99999 HTTP/1.1\r\n\r\n",
        b"GET http://a@127.0.0.1/ HTTP/1.1\r\n\r\n",
        b"GET http://127.0.0.1/ HTTP/1.1\r\nX: 1\nHost: inside\r\n\r\n",
        b"GET http://127.0.0.1/ HTTP/1.1\r\nX: 1\r\n folded\r\n\r\n",
        b"GET http://127.0.0.1/ HTTP/1.1\r\nno header\r\n\r\n",
        b"GET http://127.0.0.1/\x00 HTTP/1.1\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
        b"x" * (HEAD_BYTES + 1),
    ],
)
async def test_what_is_not_a_request_is_refused_with_a_text(request_bytes: bytes) -> None:
    """And the next one is served."""
    async with proxy() as port:
        answer = await exchange(port, request_bytes)
        assert answer.startswith(b"HTTP/1.1 403 ") or not answer, answer  # a long one may be cut off before it
        assert (await exchange(port, b"GET / HTTP/1.1\r\n\r\n")).startswith(b"HTTP/1.1 403 ")


async def test_a_host_that_refuses_is_reported_by_its_name() -> None:
    """With its name and port, and not with its address."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        closed = unused.getsockname()[1]
        async with proxy(f"open.example:{closed}", names=Names(open_example=[["127.0.0.1"]])) as port:
            answer = await exchange(port, f"CONNECT open.example:{closed} HTTP/1.1\r\n\r\n".encode())
    assert answer.startswith(f"HTTP/1.1 403 'open.example' cannot be reached on port {closed}\r\n".encode())


async def test_bytes_and_connections_of_a_command_have_an_end(web: WebServer) -> None:
    """A tunnel breaks off at the limit, and nothing follows it."""
    web.pages["/long"] = reply(b"x" * 300_000)
    async with proxy(f"127.0.0.1:{web.port}", limits=ProxyLimits(bytes=200_000)) as port:
        answer = await exchange(port, f"GET {web.url('/long')} HTTP/1.1\r\n\r\n".encode())
        assert len(answer) <= 200_000
    async with proxy(f"127.0.0.1:{web.port}", limits=ProxyLimits(connections=1)) as port:
        request = f"GET {web.url('/page')} HTTP/1.1\r\n\r\n".encode()
        assert (await exchange(port, request)).endswith(b"the page")
        assert (await exchange(port, request)).startswith(b"HTTP/1.1 403 the command has used up its connections")


async def test_at_most_so_many_connections_are_open_and_all_end_with_the_command() -> None:
    """More wait until one ends; none survives the proxy."""
    now_open: set[int] = set()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        now_open.add(id(writer))
        try:
            await reader.read()
        finally:
            now_open.discard(id(writer))

    async with stream_server(handle) as server:
        head = f"CONNECT 127.0.0.1:{server} HTTP/1.1\r\n\r\n".encode()
        async with proxy(f"127.0.0.1:{server}", limits=ProxyLimits(at_once=2)) as port:
            streams = [await asyncio.open_connection("127.0.0.1", port) for _ in range(3)]
            for _, writer in streams:
                writer.write(head)
            await eventually(lambda: len(now_open) == 2, what="two connections")
            streams[0][1].close()
            await streams[2][0].readline()  # its turn has come
            assert len(now_open) <= 2
        await eventually(lambda: not now_open, what="the end of all")
        for _, writer in streams:
            writer.close()
