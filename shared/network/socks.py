"""Connections of aiohttp through a SOCKS proxy, with aiohttp's own errors. Needs the extra
`channels`."""

from __future__ import annotations

from typing import Any

import aiohttp
from aiohttp_socks import ProxyConnectionError, ProxyConnector, ProxyError, ProxyTimeoutError
from aiohttp_socks import ProxyType as SocksType

__all__ = ["SocksConnector", "SocksType"]


class SocksConnector(ProxyConnector):
    """A connector whose failures look like any other connection that was not made: the callers know
    from that error alone that nothing was sent."""

    async def _wrap_create_connection(self, *args: Any, req: aiohttp.ClientRequest, **more: Any) -> Any:
        try:
            return await super()._wrap_create_connection(*args, req=req, **more)
        except (ProxyConnectionError, ProxyError, ProxyTimeoutError, TimeoutError) as exc:
            why = OSError(f"the SOCKS proxy made no connection: {type(exc).__name__}")
            raise aiohttp.ClientProxyConnectionError(req.connection_key, why) from exc
