"""A POST to a program that the operator named: to checked addresses, without a redirect."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from typing import Final

import aiohttp
import msgspec
from yarl import URL

from shared.guards.addresses import WebPolicy, parse_target
from shared.guards.fetch import CONNECT_S, LookUp, resolve_target
from shared.guards.request import USER_AGENT, open_checked_session
from shared.network.outgoing import current

ANSWER_BYTES: Final = 16 * 1024
ANSWER_S: Final = 1.0
"""Seconds for the body of an answer, of which nothing is used: it is read so that the program is not
cut off while it writes."""

NOT_CONNECTED: Final = (
    aiohttp.ClientConnectorError,
    aiohttp.ClientHttpProxyError,
    aiohttp.ConnectionTimeoutError,
)
"""Errors after which nothing was sent."""


class NoAnswer(Exception):
    """The request may have arrived: no answer came, or none that can be read."""


class PostAnswer(msgspec.Struct, frozen=True):
    """The answer to a POST. `retry_after` is the header as it came."""

    status: int
    retry_after: str = ""


async def post_once(
    url: str, policy: WebPolicy, headers: Mapping[str, str], body: bytes, *, look_up: LookUp, total_s: float
) -> PostAnswer:
    """Send one POST. The name is looked up once, every address of it checked, and the connection
    goes to one of these; behind a proxy see `fetch`. Raises ToolFailed for an address that may not
    be reached (HostNotFound if there is none), ConnectionError when nothing was sent, NoAnswer."""
    timeout = aiohttp.ClientTimeout(total=total_s, sock_connect=CONNECT_S)
    target = parse_target(url, policy)
    known = current().proxy_for(target.url) is None
    addresses = await resolve_target(target, policy, look_up, CONNECT_S, known=known)
    own = {"User-Agent": USER_AGENT, "Accept-Encoding": "identity", **headers}
    try:
        async with (
            open_checked_session(target, addresses, timeout) as session,
            session.post(URL(target.url, encoded=True), headers=own, data=body, allow_redirects=False) as answer,
        ):
            await _drain(answer.content)
            return PostAnswer(answer.status, answer.headers.get("Retry-After", ""))
    except NOT_CONNECTED as exc:
        raise ConnectionError("no connection") from exc
    except (aiohttp.ClientError, TimeoutError, OSError) as exc:
        raise NoAnswer("no answer") from exc


async def _drain(content: aiohttp.StreamReader) -> None:
    """Read what comes, within limits. The status counts, whatever becomes of the rest."""
    many = 0
    with contextlib.suppress(aiohttp.ClientError, TimeoutError):
        async with asyncio.timeout(ANSWER_S):
            while many < ANSWER_BYTES and (data := await content.read(ANSWER_BYTES - many)):
                many += len(data)
