"""Calls of Feishu's open API: one try each, with the app's token, which is renewed when it is
refused.

lark-oapi is not used: importing any of it takes 168 MB and seconds, and its socket client listens
on a loop of its own and acknowledges events that it could not handle.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, Final

import aiohttp
import msgspec

from gateway.channels.feishu.refusals import NONE, TOKEN_GONE, FeishuError, map_error
from gateway.channels.http import PART_BYTES, PlatformHttp, repeatable
from gateway.platform.protocol import ChannelBroken, MaybeSent, NotAccepted, Throttled
from shared.network.outgoing import Outgoing
from shared.version import VERSION

EARLY_S: Final = 600.0
"""A token is renewed this long before it expires."""

CONNECT_S: Final = 5.0
_JSON: Final = {"Content-Type": "application/json; charset=utf-8"}


class FeishuReply(msgspec.Struct, frozen=True):
    """The form of every reply; `bot` is for the identity call, the last two are for a token."""

    code: int = NONE
    msg: str = ""
    data: msgspec.Raw = msgspec.Raw(b"{}")
    bot: msgspec.Raw = msgspec.Raw(b"{}")
    tenant_access_token: str = ""
    expire: float = 0.0


class FeishuCalls:
    """The calls of one app. `server` has no trailing slash; `timeout_s` limits a whole call."""

    def __init__(
        self,
        app_id: str,
        secret: str,
        server: str,
        *,
        timeout_s: float,
        outgoing: Outgoing | None = None,
    ) -> None:
        self._app_id = app_id
        self._secret = secret
        self._token = ""
        self._good_until = 0.0
        self._token_lock = asyncio.Lock()
        self.http = PlatformHttp(
            server,
            timeout_s=timeout_s,
            connect_s=min(CONNECT_S, timeout_s),
            answer_bytes=1024 * 1024,
            headers={"User-Agent": f"shoal/{VERSION}"},
            outgoing=outgoing,
        )

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
        refused = ""
        while True:
            token = await self._valid_token(refused)
            headers = {**({} if body is None else _JSON), "Authorization": f"Bearer {token}"}
            data = form() if form is not None else body
            try:
                return await self._request(method, path, params=params, data=data, headers=headers)
            except FeishuError as error:
                if error.code not in TOKEN_GONE or refused:
                    raise
                refused = token

    async def call_invisible(self, method: str, path: str, **more: Any) -> FeishuReply:
        """Run a call without visible effects. Raises ChannelBroken, NotDelivered, not MaybeSent."""
        try:
            return await repeatable(self.call(method, path, **more))
        except FeishuError as refused:
            error = map_error(refused)
            raise NotAccepted(error.reason) if isinstance(error, MaybeSent) else error from refused

    async def request_endpoint(self) -> FeishuReply:
        """Return the reply with an address for a connection. Raises FeishuError, NotAccepted."""
        path = "/callback/ws/endpoint"
        headers = {"Content-Type": "application/json", "locale": "zh"}
        body = msgspec.json.encode({"AppID": self._app_id, "AppSecret": self._secret})
        return await repeatable(self._request("POST", path, data=body, headers=headers))

    async def download(self, path: str, params: Mapping[str, str]) -> AsyncIterator[bytes]:
        """Yield the body of a response with status 200. Raises FeishuError, NotAccepted."""
        refused = ""
        while True:
            token = await self._valid_token(refused)
            headers = {"Authorization": f"Bearer {token}"}
            url = self.http.base + path
            async with self.http.download(url, params=params, headers=headers) as answer:
                if answer.status == 200:
                    async for part in answer.content.iter_chunked(PART_BYTES):
                        yield part
                    return
                error = _error(answer, _read_reply(await self.http.read(answer)))
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

    async def _request_token(self) -> FeishuReply:
        path = "/open-apis/auth/v3/tenant_access_token/internal"
        data = msgspec.json.encode({"app_id": self._app_id, "app_secret": self._secret})
        try:
            issued = await repeatable(self._request("POST", path, data=data, headers=_JSON))
        except FeishuError as refused:
            error = map_error(refused)
            if isinstance(error, Throttled | ChannelBroken):
                raise error from refused
            raise NotAccepted(f"no token: {refused}") from refused
        if not issued.tenant_access_token:
            raise NotAccepted("an answer without a token")
        return issued

    async def _request(self, method: str, path: str, **more: Any) -> FeishuReply:
        answer, body = await self.http.request(method, path, **more)
        reply = _read_reply(body)
        if answer.status != 200 or reply.code != 0:
            raise _error(answer, reply)
        return reply


def _read_reply(body: bytes) -> FeishuReply:
    try:
        return msgspec.json.decode(body, type=FeishuReply)
    except msgspec.DecodeError:
        return FeishuReply()


def _error(answer: aiohttp.ClientResponse, reply: FeishuReply) -> FeishuError:
    reset = answer.headers.get("x-ogw-ratelimit-reset")
    return FeishuError(answer.status, reply.code, reply.msg, reset)
