"""Sessions of aiohttp under the operator's rules: what goes through which proxy, whom they trust, and how they fail."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web

from gateway.channels.http import PlatformHttp
from gateway.platform.protocol import NotAccepted
from shared.network.http_client import open_session
from shared.network.outgoing import Outgoing
from shared.settings import NetworkSettings, ProxyUrl
from tests.helpers.certificates import authority
from tests.helpers.egress_proxy import EgressProxy, egress_proxy


@pytest.fixture
async def proxy() -> AsyncIterator[EgressProxy]:
    async with egress_proxy() as server:
        yield server


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[str]:
    """A server with a certificate of the company's authority; `/away` leads to `/`, `/socket` is a web socket."""

    async def answer(request: web.Request) -> web.StreamResponse:
        match request.path:
            case "/away":
                raise web.HTTPFound("/")
            case "/socket":
                socket = web.WebSocketResponse()
                await socket.prepare(request)
                await socket.send_str("hello")
                await socket.close()
                return socket
            case _:
                return web.Response(text="hello")

    authority(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "server.crt", tmp_path / "server.key")
    app = web.Application()
    app.router.add_get("/{tail:.*}", answer)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
    yield f"https://127.0.0.1:{runner.addresses[0][1]}"
    await runner.cleanup()


def rules(url: str, tmp_path: Path, *no_proxy: str) -> Outgoing:
    return Outgoing.from_settings(NetworkSettings(ProxyUrl(url), no_proxy, tmp_path / "ca.crt"))


@pytest.mark.parametrize("scheme", ["http", "socks5", "socks5h"])
async def test_calls_redirects_and_sockets_go_through_it_with_the_companys_certificate(
    scheme: str, proxy: EgressProxy, site: str, tmp_path: Path
) -> None:
    """TLS is from end to end: the proxy sees a host and a port."""
    async with open_session(rules(proxy.url(scheme), tmp_path)) as session:
        async with session.get(f"{site}/away") as answer:
            assert await answer.text() == "hello"
        async with session.ws_connect(f"{site.replace('http', 'ws', 1)}/socket") as socket:
            assert (await socket.receive()).data == "hello"
    host = site.partition("://")[2]
    assert set(proxy.asked) == {f"{'CONNECT' if scheme == 'http' else 'SOCKS'} {host}"}


async def test_what_is_excepted_is_called_directly(proxy: EgressProxy, site: str, tmp_path: Path) -> None:
    """Decided for each address, with the same certificates."""
    async with open_session(rules(proxy.url(), tmp_path, "127.0.0.0/8")) as session:
        async with session.get(site) as answer:
            assert await answer.text() == "hello"
    assert proxy.asked == []


async def test_without_the_authority_nothing_is_sent(proxy: EgressProxy, site: str) -> None:
    """A proxy that opens connections is noticed."""
    async with open_session(Outgoing(ProxyUrl(proxy.url()))) as session:
        with pytest.raises(aiohttp.ClientConnectorCertificateError):
            await session.get(site)


@pytest.mark.parametrize("scheme", ["http", "socks5"])
@pytest.mark.parametrize("gone", [False, True])
async def test_a_proxy_that_makes_no_connection_means_that_nothing_was_sent(
    scheme: str, gone: bool, proxy: EgressProxy
) -> None:
    """So a post is sent again without a doubt, and is there once."""
    url = f"{scheme}://127.0.0.1:9" if gone else proxy.url(scheme)
    http = PlatformHttp("https://nowhere.example", timeout_s=5.0, outgoing=Outgoing(ProxyUrl(url)))
    with pytest.raises(NotAccepted):
        await http.request("POST", "/post")
    await http.close()
