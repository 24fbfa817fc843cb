"""A worker behind a proxy: web tools, commands, MCP servers and traces, none of them directly. Every name in here leads
nowhere but at the proxy. Models are in `llm/`."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import httpx2
import pytest

from shared.errors import ToolFailed
from shared.guards.addresses import WebPolicy
from shared.guards.fetch import Fetcher
from shared.settings import McpServerSettings, NetworkSettings, ProxyUrl
from shared.settings.sections.processes import TracingSettings
from shared.tracing import process, span
from shared.tracing.spans import TURN
from tests.helpers.certificates import authority
from tests.helpers.egress_proxy import EgressProxy, behind, egress_proxy, outgoing_by
from tests.helpers.otlp_server import collector
from tests.helpers.stream_server import stream_server
from tests.helpers.web_server import WebServer, reply, web_server
from tests.shared.guards.test_fetch import Names
from worker.guards.proxy import CommandProxy
from worker.mcp.http_streams import _build_client

PAGES = ("text/html",)


@pytest.fixture
async def proxy() -> AsyncIterator[EgressProxy]:
    async with egress_proxy() as server:
        yield server


@pytest.fixture
async def web() -> AsyncIterator[WebServer]:
    async with web_server() as server:
        server.pages["/page"] = reply("the page")
        yield server


# --- web tools and commands


async def test_pages_are_fetched_through_it_by_name(proxy: EgressProxy, web: WebServer) -> None:
    """A name that leads nowhere here is left to the proxy, as in a network without public names."""
    proxy.hosts["docs.example.com"] = web.port
    with behind(proxy.url()):
        fetcher = Fetcher(WebPolicy(), look_up=Names())
        assert (await fetcher.fetch_url("http://docs.example.com/page", types=PAGES)).body == b"the page"
    assert proxy.asked == ["GET http://docs.example.com/page"]


@pytest.mark.parametrize(
    "url",
    [
        "http://10.0.0.1/",
        "http://169.254.169.254/latest/meta-data",
        "http://[::1]/",
        "http://localhost/",
        "http://intranet/",
        "http://127.1/",
        "http://inside.example.com/",
        "http://docs.example.com:8080/",
    ],
)
async def test_what_is_private_is_not_asked_of_it_either(url: str, proxy: EgressProxy) -> None:
    """As an address, as a local name, as a name that leads there: the proxy would reach it for the agent."""
    names = Names(inside_example_com=[["93.184.216.34", "10.1.2.3"]], docs_example_com=[["93.184.216.34"]])
    with behind(proxy.url()), pytest.raises(ToolFailed, match="blocked"):
        await Fetcher(WebPolicy(), look_up=names).fetch_url(url, types=PAGES)
    assert proxy.asked == []


async def test_a_page_that_the_proxy_refuses_says_who_refused() -> None:
    """The model goes on without it, and does not try the same page again."""
    async with egress_proxy() as proxy:
        with behind(proxy.url()):
            fetcher = Fetcher(WebPolicy(), look_up=Names())
            with pytest.raises(ToolFailed, match=r"proxy of this network makes no connection to 'a\.example\.com'"):
                await fetcher.fetch_url("https://a.example.com/", types=PAGES)
    with behind(proxy.url()), pytest.raises(ToolFailed, match="the proxy of this network does not answer"):
        await fetcher.fetch_url("https://a.example.com/", types=PAGES)


async def test_commands_go_through_it_too(proxy: EgressProxy, web: WebServer) -> None:
    """Tunnels as tunnels; plain requests as such, because many proxies allow CONNECT to port 443 alone."""
    proxy.hosts["a.example.com"] = web.port
    request = b"GET http://a.example.com/page HTTP/1.1\r\nHost: x\r\nProxy-Authorization: theirs\r\n\r\n"
    tunnel = b"CONNECT a.example.com:443 HTTP/1.1\r\n\r\nGET /page HTTP/1.1\r\nHost: a\r\n\r\n"
    with behind(proxy.url(login="shoal:secret")):
        assert (await ask_as_command(request)).endswith(b"the page")
        assert (await ask_as_command(tunnel)).endswith(b"the page")
        assert b"403 blocked address 10.0.0.1" in await ask_as_command(b"CONNECT 10.0.0.1:443 HTTP/1.1\r\n\r\n")
        refused = await ask_as_command(b"CONNECT b.example.com:443 HTTP/1.1\r\n\r\n")
        assert refused.startswith(b"HTTP/1.1 403 the proxy of this network makes no connection")
    assert proxy.asked[:2] == ["GET http://a.example.com/page", "CONNECT a.example.com:443"]
    assert proxy.logins == ["shoal:secret"] * 3
    assert "proxy-authorization" not in web.asked[0].headers


async def ask_as_command(request: bytes) -> bytes:
    """All that a command gets for a request to its own proxy."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        serving = asyncio.create_task(CommandProxy(WebPolicy(), Names()).serve(listener))
        reader, writer = await asyncio.open_connection(*listener.getsockname())
        writer.write(request)
        answer = await reader.read()
        writer.close()
        serving.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await serving
    return answer


# --- MCP servers and traces


async def test_mcp_servers_are_reached_through_it(proxy: EgressProxy, web: WebServer) -> None:
    """Over HTTP; a server that is a process on this machine has no address."""
    proxy.hosts["mcp.example"] = web.port
    with behind(proxy.url(login="a:b"), "here.example"):
        async with _build_client(McpServerSettings(url="http://mcp.example/mcp")) as client:
            assert (await client.get("http://mcp.example/page")).text == "the page"
    assert proxy.asked == ["GET http://mcp.example/page"]
    assert proxy.logins == ["a:b"]


async def test_traces_are_sent_through_it(proxy: EgressProxy) -> None:
    """To a collector by name."""
    with collector() as there, behind(proxy.url(login="a:b")):
        proxy.hosts["traces.example"] = int(there.address.rpartition(":")[2])
        process.start(TracingSettings(endpoint="http://traces.example"), process="worker")
        with span(TURN):
            pass
        await process.stop()
        assert [one.name for one in there.spans] == ["turn"]
    assert proxy.asked == ["POST http://traces.example/v1/traces"]
    assert proxy.logins == ["a:b"]


async def test_both_believe_the_companys_authority(proxy: EgressProxy, tmp_path: Path) -> None:
    """Inside a tunnel, over TLS from end to end; without the authority nothing is sent."""
    ca_file = authority(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "server.crt", tmp_path / "server.key")

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello")
        await writer.drain()

    async with stream_server(answer, ssl=context) as port:
        url = f"https://127.0.0.1:{port}/mcp"
        for rules in (NetworkSettings(ProxyUrl(proxy.url()), ()), NetworkSettings(ProxyUrl(proxy.url()), (), ca_file)):
            with outgoing_by(rules):
                async with _build_client(McpServerSettings(url=url)) as client:
                    if rules.ca_file is None:
                        with pytest.raises(httpx2.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
                            await client.get(url)
                    else:
                        assert (await client.get(url)).text == "hello"
    with collector(certificates=tmp_path) as there, outgoing_by(rules):
        process.start(TracingSettings(endpoint=there.address), process="worker")
        with span(TURN):
            pass
        await process.stop()
        assert [one.name for one in there.spans] == ["turn"]
    assert {one.partition(" ")[0] for one in proxy.asked} == {"CONNECT"}
