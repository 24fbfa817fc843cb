"""Tunnels for what has no HTTP library: every byte of the far side arrives, and a proxy that refuses is an OSError."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shared.network.tunnel import HEAD_BYTES, open_blocking_tunnel, open_request, open_tunnel
from tests.helpers.egress_proxy import EgressProxy, egress_proxy
from tests.helpers.stream_server import stream_server

GREETING = b"220 mail.example ready\r\n"
WITHIN_S = 5.0


@pytest.fixture
async def proxy() -> AsyncIterator[EgressProxy]:
    """With a mail server behind it that speaks first."""

    async def greet(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(GREETING)
        await writer.drain()

    async with egress_proxy() as server, stream_server(greet) as port:
        server.hosts["mail.example"] = port
        yield server


async def received(tunnel: socket.socket) -> bytes:
    """All that comes."""
    tunnel.setblocking(False)
    with tunnel:
        data = b""
        while piece := await asyncio.get_running_loop().sock_recv(tunnel, 1024):
            data += piece
        return data


@pytest.mark.parametrize("scheme", ["http", "socks5", "socks5h"])
async def test_what_the_server_says_first_arrives(scheme: str, proxy: EgressProxy) -> None:
    """Also where it comes in one piece with the proxy's answer; with a user and a password."""
    url = proxy.url(scheme, "me:a%20b%2F")
    assert await received(await open_tunnel(url, "mail.example", 25, WITHIN_S)) == GREETING
    blocking = await asyncio.to_thread(open_blocking_tunnel, url, "mail.example", 25, WITHIN_S)
    assert blocking.gettimeout() == WITHIN_S
    assert await received(blocking) == GREETING
    assert proxy.logins == ["me:a b/"] * 2
    assert all(one.endswith(" mail.example:25") for one in proxy.asked)


@pytest.mark.parametrize("scheme", ["http", "socks5"])
async def test_a_proxy_that_refuses_is_an_error_of_the_network(scheme: str, proxy: EgressProxy) -> None:
    """And none in which the password stands."""
    for url in (proxy.url(scheme, "me:secret"), f"{scheme}://me:secret@127.0.0.1:9"):
        with pytest.raises(OSError) as caught:
            await open_tunnel(url, "nowhere.example", 25, WITHIN_S)
        assert "secret" not in str(caught.value)
        with pytest.raises(OSError):
            await asyncio.to_thread(open_blocking_tunnel, url, "nowhere.example", 25, WITHIN_S)


async def answered(answer: bytes) -> bytes | None:
    """What is read from a tunnel after this answer of a proxy; None for an OSError."""

    async def say(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        await writer.drain()

    async with stream_server(say) as port:
        try:
            return await received(await open_tunnel(f"http://127.0.0.1:{port}", "a.example", 1, WITHIN_S))
        except OSError:
            return None


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=60), st.binary(max_size=60))
def test_an_answer_of_any_bytes_is_a_tunnel_or_an_error(noise: bytes, rest: bytes) -> None:
    """Only a status of 2xx is one, and nothing behind its head is lost."""
    assert asyncio.run(answered(noise)) is None or noise.startswith(b"HTTP/1.")
    assert asyncio.run(answered(b"HTTP/1.1 200 OK\r\nX: y\r\n\r\n" + rest)) == rest
    assert asyncio.run(answered(b"HTTP/1.1 407 Who\r\n\r\n" + rest)) is None


async def test_a_head_without_end_is_given_up() -> None:
    """A proxy that never comes to its point takes no memory."""
    assert await answered(b"HTTP/1.1 200 OK\r\n" + b"x" * (HEAD_BYTES + 1)) is None


async def test_a_plain_request_names_the_whole_url(proxy: EgressProxy) -> None:
    """With the headers of the command, and the proxy's own password."""
    head = b"GET /page?q=1 HTTP/1.1\r\nHost: mail.example\r\nX: 1\r\n\r\n"
    connection, sent = await open_request(proxy.url(login="a:b"), "http://mail.example/page?q=1", head, WITHIN_S)
    connection.close()
    lines = sent.split(b"\r\n")
    assert lines[0] == b"GET http://mail.example/page?q=1 HTTP/1.1"
    assert lines[1:] == [b"Proxy-Authorization: Basic YTpi", b"Host: mail.example", b"X: 1", b"", b""]
