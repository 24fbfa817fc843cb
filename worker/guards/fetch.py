"""HTTP to places that nobody vouches for: only to checked addresses, so many bytes, so many seconds.

For every hop (the first request and each redirect): check the URL, look the name up once, check every address it has,
and connect to one of those; a name that changes its answer meanwhile changes nothing.
"""

from __future__ import annotations

import asyncio
import socket
import zlib
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from ipaddress import ip_address
from typing import Final
from urllib.parse import urljoin

import aiohttp
import msgspec
from aiohttp.abc import AbstractResolver, ResolveResult
from yarl import URL

from shared.errors import ToolFailed
from shared.version import VERSION
from worker.guards.addresses import Place, WebPolicy, check_address, place_of
from worker.guards.networks import Address

LookUp = Callable[[str, int], Awaitable[Sequence[str]]]
"""Gives all addresses of a host (and port). Raises OSError when there are none."""

USER_AGENT: Final = f"Shoal/{VERSION}"
FETCH_BYTES: Final = 2 * 1024 * 1024
FETCH_S: Final = 20.0
CONNECT_S: Final = 5.0
SILENCE_S: Final = 10.0
REDIRECTS: Final = 5
AT_ONCE: Final = 64

_REDIRECT: Final = frozenset({301, 302, 303, 307, 308})
_STEP_BYTES: Final = 64 * 1024
_LOOK_UPS_AT_ONCE: Final = 16
_GZIP: Final = zlib.MAX_WBITS | 16


class Answer(msgspec.Struct, frozen=True):
    """What a server said. `url` is where the last redirect led; `cut` says that the body was longer than is kept.
    The body of an error (a status that is not 2xx) is not read."""

    url: str
    status: int
    type: str = ""
    charset: str = ""
    body: bytes = b""
    cut: bool = False

    @property
    def ok(self) -> bool:
        return 200 <= self.status < 300


class Fetcher:
    """Requests under one policy. Every method may be called any number of times at once; nothing is kept between two
    requests: no connection, no cookie, no address.

    `body_bytes` counts after decompression. `connect_s` is for the look-up and for the connection each, `silence_s` for
    the first byte and between any two, `total_s` for everything, redirects and reading included.
    """

    def __init__(
        self,
        policy: WebPolicy,
        *,
        body_bytes: int = FETCH_BYTES,
        total_s: float = FETCH_S,
        connect_s: float = CONNECT_S,
        silence_s: float = SILENCE_S,
        look_up: LookUp | None = None,
    ) -> None:
        self._policy = policy
        self._body_bytes = body_bytes
        self.total_s = total_s
        self._connect_s = connect_s
        self._timeout = aiohttp.ClientTimeout(total=None, sock_connect=connect_s, sock_read=silence_s)
        self._look_up = look_up or _SystemLookUp()
        self._slots = asyncio.Semaphore(AT_ONCE)

    async def fetch(
        self,
        url: str,
        *,
        types: Collection[str],
        method: str = "GET",
        headers: Mapping[str, str] | None = None,
        body: bytes | None = None,
        redirects: int = REDIRECTS,
    ) -> Answer:
        """Ask for a URL and read what comes, at most `body_bytes` of it.

        `types` are the content types that are read, such as `text/html`; `text/*` and `*+json` stand for many.
        With `headers` or a `body` that only this server may see, let `redirects` be 0. Raises ToolFailed, with a text
        that names the host and no more, for what is blocked, away, slow, of another type or redirected too often.
        """
        async with self._slots:
            try:
                async with asyncio.timeout(self.total_s):
                    return await self._follow(url, types, method, headers or {}, body, redirects)
            except TimeoutError:
                raise ToolFailed(f"{_host_of(url)} took too long; try another page, or go on without it") from None

    async def _follow(
        self,
        url: str,
        types: Collection[str],
        method: str,
        headers: Mapping[str, str],
        body: bytes | None,
        redirects: int,
    ) -> Answer:
        for _ in range(redirects + 1):
            place = place_of(url, self._policy)
            answer = await self._ask(place, await self._checked(place), types, method, headers, body)
            if isinstance(answer, Answer):
                return answer
            try:
                url = urljoin(place.url, answer)
            except ValueError:
                raise ToolFailed(f"{place.host!r} redirects to no valid URL; try another one") from None
        raise ToolFailed(f"{place.host!r} redirects too often (more than {redirects} times); try another URL")

    async def _checked(self, place: Place) -> tuple[Address, ...]:
        """Every address of a place, none of them blocked."""
        if place.address is not None:
            return (place.address,)
        try:
            async with asyncio.timeout(self._connect_s):
                found = await self._look_up(place.host, place.port)
            addresses = tuple(dict.fromkeys(ip_address(address) for address in found))
        except (OSError, ValueError, UnicodeError):
            addresses = ()
        if not addresses:
            raise ToolFailed(f"the host {place.host!r} was not found; check the name, or try another one")
        for address in addresses:
            check_address(address, place.host, place.port, self._policy)
        return addresses

    async def _ask(
        self,
        place: Place,
        addresses: Sequence[Address],
        types: Collection[str],
        method: str,
        headers: Mapping[str, str],
        body: bytes | None,
    ) -> Answer | str:
        """One request: the answer, or where it redirects to."""
        own = {"User-Agent": USER_AGENT, "Accept-Encoding": "gzip"}
        try:
            async with (
                aiohttp.ClientSession(
                    connector=connector_to(place.host, addresses),
                    cookie_jar=aiohttp.DummyCookieJar(),
                    timeout=self._timeout,
                    auto_decompress=False,
                    trust_env=False,
                ) as session,
                session.request(
                    method, URL(place.url, encoded=True), headers={**own, **headers}, data=body, allow_redirects=False
                ) as response,
            ):
                target = response.headers.get("Location")
                if response.status in _REDIRECT and target is not None:
                    return target
                return await self._read(place, response, types)
        except TimeoutError:
            raise
        except aiohttp.ClientSSLError:
            raise ToolFailed(f"{place.host!r} has no valid certificate; it is not asked") from None
        except aiohttp.ClientConnectorError:
            raise ToolFailed(f"{place.host!r} cannot be reached on port {place.port}; try another URL") from None
        except (aiohttp.ClientError, OSError, ValueError, zlib.error):
            raise ToolFailed(
                f"{place.host!r} gave an answer that is not valid, or broke it off; try it later"
            ) from None

    async def _read(self, place: Place, response: aiohttp.ClientResponse, types: Collection[str]) -> Answer:
        kind = response.content_type.lower() if "Content-Type" in response.headers else ""
        if not 200 <= response.status < 300:
            return Answer(place.url, response.status, kind)
        if not any(_fits(kind, type) for type in types):
            raise ToolFailed(f"{place.host!r} sent {kind or 'no type'!r}, which cannot be read here; try another page")
        match response.headers.get("Content-Encoding", "identity").strip().lower():
            case "identity" | "":
                packed = False
            case "gzip" | "x-gzip":
                packed = True
            case other:
                raise ToolFailed(f"{place.host!r} sent the encoding {other[:40]!r}, which was not asked for")
        body, cut = await self._body(response.content, packed)
        return Answer(place.url, response.status, kind, response.charset or "", body, cut)

    async def _body(self, stream: aiohttp.StreamReader, packed: bool) -> tuple[bytes, bool]:
        """At most `body_bytes` of the body, and whether there was more. What was sent is held to the same size."""
        kept = bytearray()
        unpack = _Gunzip() if packed else None
        received = 0
        while data := await stream.read(_STEP_BYTES):
            received += len(data)
            kept += data if unpack is None else unpack.unpack(data, self._body_bytes + 1 - len(kept))
            if max(len(kept), received) > self._body_bytes:
                return bytes(kept[: self._body_bytes]), True
        return bytes(kept), False


class _Gunzip:
    """Gzip, never more of it unpacked than is wanted: a few bytes can stand for gigabytes."""

    def __init__(self) -> None:
        self._member = zlib.decompressobj(_GZIP)

    def unpack(self, data: bytes, limit_bytes: int) -> bytes:
        """What these bytes stand for, at most that many. Call it no more once the limit was reached."""
        out = bytearray()
        while data and len(out) < limit_bytes:
            if self._member.eof:
                self._member = zlib.decompressobj(_GZIP)
            out += self._member.decompress(data, limit_bytes - len(out))
            data = self._member.unused_data if self._member.eof else self._member.unconsumed_tail
        return bytes(out)


class _Checked(AbstractResolver):
    """Knows one host, and of it only the addresses that were checked."""

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
    """Connections to one host, at addresses that were checked, and to nothing else whatever a request says."""

    def opened(info: aiohttp.AddrInfoType) -> socket.socket:
        """The last look before a connection is made; a literal address never meets the resolver."""
        family, kind, proto, _, target = info
        if ip_address(target[0]) not in addresses:
            raise OSError("the address was not checked")
        return socket.socket(family, kind, proto)

    return aiohttp.TCPConnector(
        resolver=_Checked(host, addresses), use_dns_cache=False, force_close=True, socket_factory=opened
    )


class _SystemLookUp:
    """The system's resolver, in threads of its own: one that hangs must not take those that others need."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(_LOOK_UPS_AT_ONCE, thread_name_prefix="look-up")

    async def __call__(self, host: str, port: int) -> Sequence[str]:
        infos = await asyncio.get_running_loop().run_in_executor(
            self._threads, lambda: socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        )
        return [str(info[4][0]) for info in infos]


def _fits(kind: str, wanted: str) -> bool:
    if wanted.startswith("*"):
        return kind.endswith(wanted[1:])
    return kind.startswith(wanted[:-1]) if wanted.endswith("*") else kind == wanted


def _host_of(url: str) -> str:
    """The host of a URL, for a text about it."""
    return repr(url.partition("://")[2].partition("/")[0][:80] or url[:80])
