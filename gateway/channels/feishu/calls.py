"""Calls of Feishu's open API: one try each, with the app's own token, which is renewed when it is
refused.

lark-oapi is not used: importing any of it takes 168 MB and seconds, its socket client listens on a
loop of its own and confirms what it could not take.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

import aiohttp
import msgspec

from gateway.channels.feishu.refusals import NONE, TOKEN_GONE, Said, refusal
from gateway.platform.protocol import ChannelBroken, MaybeSent, NotAccepted, Throttled
from shared.version import VERSION

ANSWER_BYTES: Final = 1024 * 1024
PART_BYTES: Final = 64 * 1024
EARLY_S: Final = 600.0
"""A token is renewed so long before its end."""

CONNECT_S: Final = 5.0
_ISSUES: Final = "/open-apis/auth/v3/tenant_access_token/internal"


class Answer(msgspec.Struct, frozen=True):
    """The form of every answer that succeeded; who we are stands in `bot`."""

    data: msgspec.Raw = msgspec.Raw(b"{}")
    bot: msgspec.Raw = msgspec.Raw(b"{}")


class _Token(msgspec.Struct, frozen=True):
    tenant_access_token: str
    expire: float


class Calls:
    """The way to Feishu of one app. `server` has no slash at its end; `timeout_s` is for a whole
    call. Made in a running loop."""

    def __init__(self, app_id: str, secret: str, server: str, *, timeout_s: float) -> None:
        self.app_id = app_id
        self.server = server
        self.timeout_s = timeout_s
        self._secret = secret
        self._token = ""
        self._good_until = 0.0
        self._asking = asyncio.Lock()
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
    ) -> Answer:
        """The answer of a call that succeeded. Raises Said, NotAccepted, MaybeSent, Throttled,
        ChannelBroken."""
        body = None if json is None else msgspec.json.encode(json)
        headers = {"Content-Type": "application/json; charset=utf-8"} if body is not None else {}
        refused = ""
        while True:
            token = await self._valid(refused)
            try:
                return await self._once(
                    method,
                    path,
                    params=params,
                    data=form() if form is not None else body,
                    headers={**headers, "Authorization": f"Bearer {token}"},
                )
            except Said as said:
                if said.code not in TOKEN_GONE or refused:
                    raise
                refused = token

    async def unseen(self, method: str, path: str, **more: Any) -> Answer:
        """A call that nobody sees anything of, whatever became of it. Raises NotDelivered,
        ChannelBroken."""
        try:
            return await self.call(method, path, **more)
        except Said as said:
            error = refusal(said)
            raise (NotAccepted(error.reason) if isinstance(error, MaybeSent) else error) from said
        except MaybeSent as exc:
            raise NotAccepted(exc.reason) from exc

    async def endpoint(self) -> Answer:
        """What Feishu says to who wants a long connection. Raises Said, NotAccepted."""
        try:
            return await self._once(
                "POST",
                "/callback/ws/endpoint",
                data=msgspec.json.encode({"AppID": self.app_id, "AppSecret": self._secret}),
                headers={"Content-Type": "application/json", "locale": "zh"},
            )
        except MaybeSent as exc:
            raise NotAccepted(exc.reason) from exc

    @asynccontextmanager
    async def download(self, path: str, params: Mapping[str, str]) -> AsyncIterator[aiohttp.ClientResponse]:
        """An answer of 200, to be read. Raises Said, NotAccepted."""
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S, sock_read=self.timeout_s)
        refused = ""
        while True:
            token = await self._valid(refused)
            headers = {"Authorization": f"Bearer {token}"}
            async with self.http.get(
                self.server + path, params=params, headers=headers, timeout=timeout, allow_redirects=False
            ) as answer:
                if answer.status == 200:
                    yield answer
                    return
                said = _said(answer, await _body(answer))
            if said.code not in TOKEN_GONE or refused:
                raise said
            refused = token

    async def _valid(self, refused: str) -> str:
        """A token that is good for a while, and another one than was refused."""
        async with self._asking:
            now = asyncio.get_running_loop().time()
            if not self._token or self._token == refused or now > self._good_until:
                told = await self._asked()
                self._token = told.tenant_access_token
                self._good_until = now + max(told.expire - EARLY_S, told.expire / 2)
            return self._token

    async def _asked(self) -> _Token:
        try:
            body = await self._body_of(
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
        except Said as said:
            error = refusal(said)
            if isinstance(error, Throttled | ChannelBroken):
                raise error from said
            raise NotAccepted(f"no token: {said}") from said

    async def _once(self, method: str, path: str, **more: Any) -> Answer:
        try:
            return msgspec.json.decode(await self._body_of(method, path, **more), type=Answer)
        except msgspec.DecodeError as exc:
            raise MaybeSent("an answer of no known form") from exc

    async def _body_of(self, method: str, path: str, **more: Any) -> bytes:
        try:
            async with self.http.request(method, self.server + path, allow_redirects=False, **more) as answer:
                body = await _body(answer)
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as exc:
            raise NotAccepted("no connection") from exc
        except (aiohttp.ClientError, TimeoutError) as exc:
            raise MaybeSent("no answer") from exc
        said = _said(answer, body)
        if answer.status != 200 or said.code != 0:
            raise said
        return body


async def _body(answer: aiohttp.ClientResponse) -> bytes:
    body = bytearray()
    async for part in answer.content.iter_chunked(PART_BYTES):
        body += part
        if len(body) > ANSWER_BYTES:
            raise MaybeSent("an answer that is far too long")
    return bytes(body)


class _Told(msgspec.Struct, frozen=True):
    code: int = NONE
    msg: str = ""


def _said(answer: aiohttp.ClientResponse, body: bytes) -> Said:
    try:
        told = msgspec.json.decode(body, type=_Told)
    except msgspec.DecodeError:
        told = _Told()
    return Said(answer.status, told.code, told.msg, answer.headers.get("x-ogw-ratelimit-reset"))
