"""HTTP to untrusted servers: to checked addresses only, within limits of bytes and seconds.

For every hop (the first request and each redirect): check the URL, look the name up once, check
every address it has, and connect to one of those. A name that resolves differently a moment later
(DNS rebinding) changes nothing, because it is never looked up again.

Behind a proxy (`[network]`) the same checks are made first. The proxy then gets the name, and makes
the connection: most proxies decide by names, and refuse addresses. A name that cannot be looked up
here, as in a network without public names, is left to the proxy."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from ipaddress import ip_address
from typing import Final
from urllib.parse import urljoin

from shared.errors import ToolFailed
from shared.network.outgoing import current
from worker.guards.addresses import Address, WebPolicy, WebTarget, check_address, parse_target
from worker.guards.response import WebRequest, WebResponse

# Return all addresses of a host (and port). Raises OSError when it has none.
LookUp = Callable[[str, int], Awaitable[Sequence[str]]]
FETCH_BYTES: Final = 2 * 1024 * 1024
FETCH_S: Final = 20.0
CONNECT_S: Final = 5.0
SILENCE_S: Final = 10.0
REDIRECTS: Final = 5
AT_ONCE: Final = 64

_LOOK_UPS_AT_ONCE: Final = 16


class Fetcher:
    """Sends requests under one policy, safely from many tasks at once. Keeps nothing between two
    requests: no connection, no cookie, no address. `body_bytes` counts after decompression.
    `connect_s` limits the look-up and the connection separately, `silence_s` the wait for the first
    byte and between any two, `total_s` everything, including redirects and reading."""

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
        self._silence_s = silence_s
        self._look_up = look_up or system_look_up()
        self._slots = asyncio.Semaphore(AT_ONCE)

    async def fetch_url(
        self,
        url: str,
        *,
        types: Collection[str],
        method: str = "GET",
        headers: Mapping[str, str] | None = None,
        body: bytes | None = None,
        redirects: int = REDIRECTS,
    ) -> WebResponse:
        """Ask for a URL and read what comes, at most `body_bytes` of it. `types` are the content
        types that are read, such as `text/html`; `text/*` and `*+json` stand for many. With
        `headers` or a `body` that only this server may see, let `redirects` be 0. Raises
        ToolFailed, with a text that names the host and no more, for what is blocked, away, slow, of
        another type or redirected too often."""
        own = headers or {}
        asked = WebRequest(types, method, own, body, self._body_bytes, self._connect_s, self._silence_s)
        async with self._slots:
            try:
                async with asyncio.timeout(self.total_s):
                    return await self._follow_redirects(url, asked, redirects)
            except TimeoutError:
                host = url.partition("://")[2].partition("/")[0][:80] or url[:80]
                raise ToolFailed(f"{host!r} took too long; try another page, or go on without it") from None

    async def _follow_redirects(self, url: str, asked: WebRequest, redirects: int) -> WebResponse:
        # Imported here: it loads the HTTP library, which a starting worker does not need yet.
        from worker.guards.request import send_request

        for _ in range(redirects + 1):
            target = parse_target(url, self._policy)
            addresses = await resolve_target(
                target,
                self._policy,
                self._look_up,
                self._connect_s,
                known=current().proxy_for(target.url) is None,
            )
            response = await send_request(target, addresses, asked)
            if isinstance(response, WebResponse):
                return response
            try:
                url = urljoin(target.url, response)
            except ValueError:
                raise ToolFailed(f"{target.host!r} redirects to no valid URL; try another one") from None
        raise ToolFailed(f"{target.host!r} redirects too often (more than {redirects} times); try another URL")


async def resolve_target(
    target: WebTarget, policy: WebPolicy, look_up: LookUp, look_up_s: float, *, known: bool = True
) -> tuple[Address, ...]:
    """Return every address of a target; raise ToolFailed if any of them is blocked, or if it has
    none and must be `known`."""
    if target.address is not None:
        return (target.address,)
    try:
        async with asyncio.timeout(look_up_s):
            found = await look_up(target.host, target.port)
        addresses = tuple(dict.fromkeys(ip_address(address) for address in found))
    except (OSError, ValueError, UnicodeError):
        addresses = ()
    if not addresses and known:
        raise ToolFailed(f"the host {target.host!r} was not found; check the name, or try another one")
    for address in addresses:
        check_address(address, target.host, target.port, policy)
    return addresses


def system_look_up() -> LookUp:
    """Return the system's resolver with threads of its own: it must not use up the default pool."""
    threads = ThreadPoolExecutor(_LOOK_UPS_AT_ONCE, thread_name_prefix="look-up")

    async def look_up(host: str, port: int) -> Sequence[str]:
        infos = await asyncio.get_running_loop().run_in_executor(
            threads, lambda: socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        )
        return [str(info[4][0]) for info in infos]

    return look_up
