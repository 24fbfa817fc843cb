"""Calls of Feishu's open API: one try each, with the app's token, which is renewed when it is
refused.

lark-oapi is not used: importing any of it takes 168 MB and seconds, and its socket client listens
on a loop of its own and acknowledges events that it could not handle.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

import aiohttp
import msgspec

from gateway.channels.feishu.refusals import NONE, TOKEN_GONE, FeishuError, map_error
from gateway.platform.protocol import ChannelBroken, MaybeSent, NotAccepted, Throttled
from shared.version import VERSION

ANSWER_BYTES: Final = 1024 * 1024
PART_BYTES: Final = 64 * 1024
EARLY_S: Final = 600.0
"""A token is renewed this long before it expires."""

CONNECT_S: Final = 5.0
_ISSUES: Final = "/open-apis/auth/v3/tenant_access_token/internal"


class FeishuReply(msgspec.Struct, frozen=True):
    """The form of every successful reply; only the identity call uses `bot`."""

    data: msgspec.Raw = msgspec.Raw(b"{}")
    bot: msgspec.Raw = msgspec.Raw(b"{}")


class _Token(msgspec.Struct, frozen=True):
    tenant_access_token: str
    expire: float


class FeishuHttp:
    """The connection of one app. `server` has no trailing slash; `timeout_s` limits a whole call.
    Must be created inside a running loop."""

    def __init__(self, app_id: str, secret: str, server: str, *, timeout_s: float) -> None:
        self.app_id = app_id
        self.server = server
        self.timeout_s = timeout_s
        self._secret = secret
        self._token = ""
        self._good_until = 0.0
        self._token_lock = asyncio.Lock()
        self.http = aiohttp.ClientSession(
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(total=timeout_s, sock_connect=min(CONNECT_S, timeout_s)),
            headers={"User-Agent": f"shoal/{VERSION}"},
            trust_env=False,
        )

    async def close(self) -> None:
        await self.http.close()

    async def call(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        json: object = None,
        form: Callable[[], aiohttp.FormData] | None = None,
    ) -> FeishuReply:
        """Return the reply of a successful call. Raises FeishuError, NotAccepted, MaybeSent,
        Throttled, ChannelBroken."""
        body = None if json is None else msgspec.json.encode(json)
        headers = {"Content-Type": "application/json; charset=utf-8"} if body is not None else {}
        refused = ""
        while True:
            token = await self._valid_token(refused)
            try:
                return await self._request(
                    method,
                    path,
                    params=params,
                    data=form() if form is not None else body,
                    headers={**headers, "Authorization": f"Bearer {token}"},
                )
            except FeishuError as error:
                if error.code not in TOKEN_GONE or refused:
                    raise
                refused = token

    async def call_invisible(self, method: str, path: str, **more: Any) -> FeishuReply:
        """Run a call without visible effects: an unclear outcome is then as good as a failure.
        Raises NotDelivered, ChannelBroken."""
        try:
            return await self.call(method, path, **more)
        except FeishuError as refused:
            error = map_error(refused)
            raise (NotAccepted(error.reason) if isinstance(error, MaybeSent) else error) from refused
        except MaybeSent as exc:
            raise NotAccepted(exc.reason) from exc

    async def request_endpoint(self) -> FeishuReply:
        """Return the reply with the address of a long connection. Raises FeishuError,
        NotAccepted."""
        try:
            return await self._request(
                "POST",
                "/callback/ws/endpoint",
                data=msgspec.json.encode({"AppID": self.app_id, "AppSecret": self._secret}),
                headers={"Content-Type": "application/json", "locale": "zh"},
            )
        except MaybeSent as exc:
            raise NotAccepted(exc.reason) from exc

    @asynccontextmanager
    async def download(self, path: str, params: Mapping[str, str]) -> AsyncIterator[aiohttp.ClientResponse]:
        """Yield a response with status 200, to be read. Raises FeishuError, NotAccepted."""
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S, sock_read=self.timeout_s)
        refused = ""
        while True:
            token = await self._valid_token(refused)
            headers = {"Authorization": f"Bearer {token}"}
            async with self.http.get(
                self.server + path, params=params, headers=headers, timeout=timeout, allow_redirects=False
            ) as answer:
                if answer.status == 200:
                    yield answer
                    return
                error = _read_error(answer, await _read_body(answer))
            if error.code not in TOKEN_GONE or refused:
                raise error
            refused = token

    async def _valid_token(self, refused: str) -> str:
        """Return a token that is valid for a while, and differs from the refused one."""
        # One renewal at a time: parallel calls with an expired token share the new one.
        async with self._token_lock:
            now = asyncio.get_running_loop().time()
            if not self._token or self._token == refused or now > self._good_until:
                issued = await self._request_token()
                self._token = issued.tenant_access_token
                self._good_until = now + max(issued.expire - EARLY_S, issued.expire / 2)
            return self._token

    async def _request_token(self) -> _Token:
        try:
            body = await self._request_body(
                "POST",
                _ISSUES,
                data=msgspec.json.encode({"app_id": self.app_id, "app_secret": self._secret}),
                headers={"Content-Type": "application/json; charset=utf-8"},
            )
            return msgspec.json.decode(body, type=_Token)
        except msgspec.DecodeError as exc:
            raise NotAccepted("an answer without a token") from exc
        except MaybeSent as exc:
            raise NotAccepted(exc.reason) from exc
        except FeishuError as refused:
            error = map_error(refused)
            if isinstance(error, Throttled | ChannelBroken):
                raise error from refused
            raise NotAccepted(f"no token: {refused}") from refused

    async def _request(self, method: str, path: str, **more: Any) -> FeishuReply:
        try:
            return msgspec.json.decode(await self._request_body(method, path, **more), type=FeishuReply)
        except msgspec.DecodeError as exc:
            raise MaybeSent("an answer of no known form") from exc

    async def _request_body(self, method: str, path: str, **more: Any) -> bytes:
        try:
            async with self.http.request(method, self.server + path, allow_redirects=False, **more) as answer:
                body = await _read_body(answer)
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as exc:
            raise NotAccepted("no connection") from exc
        except (aiohttp.ClientError, TimeoutError) as exc:
            raise MaybeSent("no answer") from exc
        error = _read_error(answer, body)
        if answer.status != 200 or error.code != 0:
            raise error
        return body


async def _read_body(answer: aiohttp.ClientResponse) -> bytes:
    body = bytearray()
    async for part in answer.content.iter_chunked(PART_BYTES):
        body += part
        if len(body) > ANSWER_BYTES:
            raise MaybeSent("an answer that is far too long")
    return bytes(body)


class _ReplyCode(msgspec.Struct, frozen=True):
    code: int = NONE
    msg: str = ""


def _read_error(answer: aiohttp.ClientResponse, body: bytes) -> FeishuError:
    try:
        reply = msgspec.json.decode(body, type=_ReplyCode)
    except msgspec.DecodeError:
        reply = _ReplyCode()
    return FeishuError(answer.status, reply.code, reply.msg, answer.headers.get("x-ogw-ratelimit-reset"))
