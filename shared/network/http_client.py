"""Sessions of aiohttp that go out as the operator says. Import it where a session is made."""

from __future__ import annotations

from functools import partial
from typing import Any
from urllib.parse import unquote, urlsplit

import aiohttp
from yarl import URL

from shared.network.outgoing import Outgoing, current


def open_session(
    outgoing: Outgoing | None = None, *, limit: int = 100, keepalive_s: float = 15.0, **more: Any
) -> aiohttp.ClientSession:
    """Return a session under these rules, by default the process's, with at most `limit`
    connections (0 = any number), each kept for `keepalive_s`. It keeps no cookies and reads nothing
    from the environment. Needs a running loop."""
    rules = outgoing or current()
    options: dict[str, Any] = {"limit": limit, "keepalive_timeout": keepalive_s}
    if (context := rules.tls_context()) is not None:
        options["ssl"] = context
    connect = aiohttp.TCPConnector if not rules.socks else partial(_socks_connector, rules)
    return aiohttp.ClientSession(
        connector=connect(**options),
        cookie_jar=aiohttp.DummyCookieJar(),
        trust_env=False,
        middlewares=proxy_middlewares(rules),
        **more,
    )


def proxy_middlewares(rules: Outgoing) -> tuple[Any, ...]:
    """Return what sends each request of a session through its HTTP proxy; a redirect and a web
    socket are decided by their own addresses."""
    if rules.proxy is None or rules.socks:
        return ()

    async def choose_proxy(request: aiohttp.ClientRequest, handler: Any) -> aiohttp.ClientResponse:
        proxy = rules.proxy_for(str(request.url))
        request.update_proxy(URL(proxy) if proxy else None, None, None)
        if proxy is not None and request.url.scheme == "ws":
            # aiohttp asks a proxy for plain sockets by their URL, and proxies know no such scheme.
            request.url = request.url.with_scheme("http")
        response: aiohttp.ClientResponse = await handler(request)
        return response

    return (choose_proxy,)


def _socks_connector(rules: Outgoing, **options: Any) -> aiohttp.TCPConnector:
    """Return a connector through a SOCKS proxy, which looks names up itself."""
    from shared.network.socks import SocksConnector, SocksType

    assert rules.proxy is not None
    parts = urlsplit(rules.proxy.reveal())
    return SocksConnector(
        host=parts.hostname or "",
        port=parts.port or 1080,
        proxy_type=SocksType.SOCKS5,
        username=unquote(parts.username) if parts.username else None,
        password=unquote(parts.password) if parts.password else None,
        rdns=True,
        **options,
    )
