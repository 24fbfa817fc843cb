"""One HTTP request, to checked addresses and nothing else. The only file of the guards that imports
the HTTP library: import it when it is needed."""

from __future__ import annotations

import socket
import zlib
from collections.abc import Sequence
from ipaddress import ip_address
from typing import Final

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from yarl import URL

from shared.errors import ToolFailed
from shared.network.http_client import open_session
from shared.network.outgoing import current
from shared.version import VERSION
from worker.guards.addresses import Address, WebTarget
from worker.guards.response import WebRequest, WebResponse

USER_AGENT: Final = f"Shoal/{VERSION}"

_REDIRECT: Final = frozenset({301, 302, 303, 307, 308})
_STEP_BYTES: Final = 64 * 1024
_GZIP: Final = zlib.MAX_WBITS | 16


async def send_request(target: WebTarget, addresses: Sequence[Address], asked: WebRequest) -> WebResponse | str:
    """Return the response, or the location it redirects to. Without a proxy only `addresses` are
    connected to; a proxy is told the name. Raises TimeoutError and ToolFailed."""
    headers = {"User-Agent": USER_AGENT, "Accept-Encoding": "gzip", **asked.headers}
    url = URL(target.url, encoded=True)
    host = repr(target.host)
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=asked.connect_s, sock_read=asked.silence_s)
    try:
        async with (
            _open_session(target, addresses, timeout) as session,
            session.request(asked.method, url, headers=headers, data=asked.body, allow_redirects=False) as response,
        ):
            location = response.headers.get("Location")
            if response.status in _REDIRECT and location is not None:
                return location
            return await _read_response(target, response, asked)
    except TimeoutError:
        raise
    except aiohttp.ClientSSLError:
        raise ToolFailed(f"{host} has no valid certificate; it is not asked") from None
    except aiohttp.ClientProxyConnectionError:
        raise ToolFailed(
            f"the proxy of this network does not answer, so {host} cannot be reached; go on without it"
        ) from None
    except aiohttp.ClientHttpProxyError as exc:
        raise ToolFailed(
            f"the proxy of this network makes no connection to {host} (status {exc.status}); try another URL"
        ) from None
    except aiohttp.ClientConnectorError:
        raise ToolFailed(f"{host} cannot be reached on port {target.port}; try another URL") from None
    except (aiohttp.ClientError, OSError, ValueError, zlib.error):
        raise ToolFailed(f"{host} gave an answer that is not valid, or broke it off; try it later") from None


def _open_session(
    target: WebTarget, addresses: Sequence[Address], timeout: aiohttp.ClientTimeout
) -> aiohttp.ClientSession:
    if current().proxy_for(target.url) is not None:
        return open_session(timeout=timeout, auto_decompress=False, keepalive_s=0)
    return aiohttp.ClientSession(
        connector=connector_to(target.host, addresses),
        cookie_jar=aiohttp.DummyCookieJar(),
        timeout=timeout,
        auto_decompress=False,
        trust_env=False,
    )


async def _read_response(target: WebTarget, response: aiohttp.ClientResponse, asked: WebRequest) -> WebResponse:
    kind = response.content_type.lower() if "Content-Type" in response.headers else ""
    if not 200 <= response.status < 300:
        return WebResponse(target.url, response.status, kind)
    sent = f"{target.host!r} sent"
    if not any(_type_matches(kind, type) for type in asked.types):
        raise ToolFailed(f"{sent} {kind or 'no type'!r}, which cannot be read here; try another page")
    encoding = response.headers.get("Content-Encoding", "identity").strip().lower()
    if encoding not in ("identity", "", "gzip", "x-gzip"):
        raise ToolFailed(f"{sent} the encoding {encoding[:40]!r}, which was not asked for")
    body, cut = await _read_body(response.content, encoding.endswith("gzip"), asked.body_bytes)
    return WebResponse(target.url, response.status, kind, response.charset or "", body, cut)


async def _read_body(stream: aiohttp.StreamReader, packed: bool, body_bytes: int) -> tuple[bytes, bool]:
    """Return at most `body_bytes`, packed and unpacked, and whether there was more."""
    kept = bytearray()
    unpack = _Gunzip() if packed else None
    received = 0
    while data := await stream.read(_STEP_BYTES):
        received += len(data)
        kept += data if unpack is None else unpack.unpack(data, body_bytes + 1 - len(kept))
        if max(len(kept), received) > body_bytes:
            return bytes(kept[:body_bytes]), True
    return bytes(kept), False


class _Gunzip:
    """A gzip decoder that never unpacks more than is wanted: bytes can expand to gigabytes."""

    def __init__(self) -> None:
        self._member = zlib.decompressobj(_GZIP)

    def unpack(self, data: bytes, limit_bytes: int) -> bytes:
        """Unpack at most `limit_bytes`. Not to be called again once the limit was reached."""
        out = bytearray()
        while data and len(out) < limit_bytes:
            if self._member.eof:  # a gzip stream may have several members
                self._member = zlib.decompressobj(_GZIP)
            out += self._member.decompress(data, limit_bytes - len(out))
            data = self._member.unused_data if self._member.eof else self._member.unconsumed_tail
        return bytes(out)


class _CheckedResolver(AbstractResolver):
    """A resolver that knows one host, and only its checked addresses."""

    def __init__(self, host: str, addresses: Sequence[Address]) -> None:
        self._host = host
        self._addresses = addresses

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        if host != self._host:
            raise OSError(f"{host!r} was not checked")
        return [
            ResolveResult(
                hostname=host,
                host=str(address),
                port=port,
                family=socket.AF_INET if address.version == 4 else socket.AF_INET6,
                proto=socket.IPPROTO_TCP,
                flags=socket.AI_NUMERICHOST | socket.AI_NUMERICSERV,
            )
            for address in self._addresses
        ]

    async def close(self) -> None:
        """Nothing is open."""


def connector_to(host: str, addresses: Sequence[Address]) -> aiohttp.TCPConnector:
    """Return a connector to one host at its checked addresses, whatever a request asks for."""

    def opened(info: aiohttp.AddrInfoType) -> socket.socket:
        """Check once more: aiohttp never asks the resolver about a literal address."""
        family, kind, proto, _, target = info
        if ip_address(target[0]) not in addresses:
            raise OSError("the address was not checked")
        return socket.socket(family, kind, proto)

    return aiohttp.TCPConnector(
        resolver=_CheckedResolver(host, addresses),
        use_dns_cache=False,
        force_close=True,
        socket_factory=opened,
        ssl=current().tls_context() or True,
    )


def _type_matches(kind: str, wanted: str) -> bool:
    if wanted.startswith("*"):
        return kind.endswith(wanted[1:])
    return kind.startswith(wanted[:-1]) if wanted.endswith("*") else kind == wanted
