"""Calls of Matrix's client-server API: one try each, with a limit of time.

matrix-nio is not used: it keeps the state of every room in memory, drops events that it does not
know, reads files whole, and does not say whether a call may have arrived.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from io import BytesIO
from typing import Any, Final
from urllib.parse import quote

import msgspec
from aiohttp import ClientConnectorError, ClientError, ClientResponse, ClientSession, ClientTimeout
from aiohttp import ConnectionTimeoutError as CannotConnect

from gateway.platform.protocol import ChannelBroken, NotAccepted

CLIENT: Final = "/_matrix/client/v3"
PART_BYTES: Final = 64 * 1024

_TOKEN_GONE: Final = ("M_UNKNOWN_TOKEN", "M_MISSING_TOKEN")
_ACCOUNT: Final = ("M_USER_DEACTIVATED", "M_USER_LOCKED", "M_USER_SUSPENDED", "M_CONSENT_NOT_GIVEN")


class ErrorBody(msgspec.Struct, frozen=True):
    """What an error says (client-server API, "Standard error response")."""

    errcode: str = ""
    retry_after_ms: int | float | None = None


class LoggedIn(msgspec.Struct, frozen=True):
    """A token of our own."""

    access_token: str


class Said(Exception):
    """The homeserver said no, and why."""

    def __init__(self, status: int, code: str, retry_after_s: float) -> None:
        super().__init__(f"{status} {code}".strip())
        self.status = status
        self.code = code
        self.retry_after_s = retry_after_s


class NoAnswer(Exception):
    """There was none. `connected`: the call may have arrived."""

    def __init__(self, *, connected: bool) -> None:
        super().__init__("no answer" if connected else "no connection")
        self.connected = connected


class Http:
    """One user of a homeserver, known by `token`, or by `user` and `password`."""

    def __init__(self, homeserver: str, *, token: str, user: str, password: str, timeout_s: float) -> None:
        self._base = homeserver.rstrip("/")
        self._token = token
        self._user = user
        self._password = password
        self._timeout_s = timeout_s
        self._session: ClientSession | None = None
        self._logging_in = asyncio.Lock()

    async def close(self) -> None:
        """A device that we made ourselves is taken away again."""
        if self._session is None:
            return
        try:
            if self._password and self._token:
                await self.call("POST", f"{CLIENT}/logout", json={}, timeout_s=1.0)
        except (Said, NoAnswer, ChannelBroken, NotAccepted):
            pass
        await self._session.close()

    async def call(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        json: Any = None,
        data: bytes | None = None,
        media_type: str = "application/json",
        timeout_s: float | None = None,
    ) -> bytes:
        """The body of the answer. Raises Said, NoAnswer, ChannelBroken, and NotAccepted when we are
        not logged in."""
        token = await self._known()
        body = msgspec.json.encode(json) if json is not None else data
        headers = {"Authorization": f"Bearer {token}", "Content-Type": media_type}
        try:
            return await self._call(method, path, query, body, headers, timeout_s)
        except Said as said:
            self._check(said, token)
            raise

    async def parts(self, path: str) -> AsyncIterator[bytes]:
        """The body of the answer, as it comes. Raises like `call`."""
        token = await self._known()
        limit = ClientTimeout(total=None, sock_connect=self._timeout_s, sock_read=self._timeout_s)
        try:
            async with self._open.get(
                self._base + path, headers={"Authorization": f"Bearer {token}"}, timeout=limit, allow_redirects=False
            ) as answer:
                if answer.status != 200:
                    said = await _said(answer)
                    self._check(said, token)
                    raise said
                async for part in answer.content.iter_chunked(PART_BYTES):
                    yield part
        except (ClientError, TimeoutError) as exc:
            raise NoAnswer(connected=True) from exc

    @property
    def _open(self) -> ClientSession:
        if self._session is None:
            self._session = ClientSession()
        return self._session

    async def _call(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None,
        body: bytes | None,
        headers: Mapping[str, str],
        timeout_s: float | None,
    ) -> bytes:
        """A PUT over a connection that turns out to be closed is made once more by aiohttp: all of
        ours have a transaction id or may be made twice."""
        limit = ClientTimeout(total=timeout_s or self._timeout_s)
        try:
            async with self._open.request(
                method,
                self._base + path,
                params=query,
                data=BytesIO(body) if body else None,
                headers=headers,
                timeout=limit,
                allow_redirects=False,
            ) as answer:
                if answer.status != 200:
                    raise await _said(answer)
                return await answer.read()
        except (ClientConnectorError, CannotConnect) as exc:
            raise NoAnswer(connected=False) from exc
        except (ClientError, TimeoutError) as exc:
            raise NoAnswer(connected=True) from exc

    async def _known(self) -> str:
        """The token; logs in when there is none."""
        async with self._logging_in:
            if not self._token:
                self._token = await self._log_in()
            return self._token

    async def _log_in(self) -> str:
        who = {"type": "m.id.user", "user": self._user}
        asked = {"type": "m.login.password", "identifier": who, "password": self._password}
        asked["initial_device_display_name"] = "Shoal"
        body = msgspec.json.encode(asked)
        try:
            answer = await self._call("POST", f"{CLIENT}/login", None, body, {"Content-Type": "application/json"}, None)
            return msgspec.json.decode(answer, type=LoggedIn).access_token
        except Said as said:
            if said.status == 403 or said.code in _ACCOUNT:
                raise ChannelBroken(
                    "the homeserver refuses them: mend channels.matrix.user and channels.matrix.password"
                ) from said
            raise NotAccepted(f"cannot log in: {said}") from said
        except (NoAnswer, msgspec.DecodeError) as exc:
            raise NotAccepted(f"cannot log in: {type(exc).__name__}") from exc

    def _check(self, said: Said, token: str) -> None:
        """Whether it is about us and not about what was asked."""
        if said.code in _ACCOUNT:
            raise ChannelBroken(f"the homeserver has shut this user out ({said.code}): ask its administrator") from said
        if said.code not in _TOKEN_GONE and said.status != 401:
            return
        if self._password:
            if self._token == token:
                self._token = ""
            raise NotAccepted("logged out; the next call logs in again") from said
        raise ChannelBroken(
            "the homeserver does not know this token: write a valid one into channels.matrix.access_token"
        ) from said


def path_of(*parts: str) -> str:
    """A path below the client-server API; ids are quoted."""
    return "/".join((CLIENT, *(quote(part, safe="") for part in parts)))


async def _said(answer: ClientResponse) -> Said:
    """What an answer that is no 200 means; a proxy's may be of any form."""
    try:
        error = msgspec.json.decode(await answer.read(), type=ErrorBody)
    except msgspec.DecodeError:
        error = ErrorBody()
    retry_s = (error.retry_after_ms or 0) / 1000
    told = answer.headers.get("Retry-After", "")
    if not retry_s and told.isdecimal():
        retry_s = float(told[:6])
    return Said(answer.status, error.errcode, min(max(retry_s, 0.0), 3600.0))
