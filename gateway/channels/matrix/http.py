"""Calls of Matrix's client-server API: one try each, with a time limit.

matrix-nio is not used: it keeps the state of every room in memory, drops event types that it does
not know, reads files whole, and does not tell whether a failed call may have arrived.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from io import BytesIO
from typing import Any, Final
from urllib.parse import quote

import aiohttp
import msgspec

from gateway.channels.http import PART_BYTES, PlatformHttp, repeatable
from gateway.channels.matrix.wire import Reply
from gateway.platform.protocol import ChannelBroken, NotAccepted, NotDelivered
from shared.network.outgoing import Outgoing

CLIENT: Final = "/_matrix/client/v3"

_TOKEN_GONE: Final = ("M_UNKNOWN_TOKEN", "M_MISSING_TOKEN")
_ACCOUNT: Final = ("M_USER_DEACTIVATED", "M_USER_LOCKED", "M_USER_SUSPENDED", "M_CONSENT_NOT_GIVEN")


class _ErrorBody(msgspec.Struct, frozen=True):  # client-server API, "Standard error response"
    errcode: str = ""
    retry_after_ms: int | float | None = None


class MatrixError(Exception):
    """The homeserver refused a call."""

    def __init__(self, status: int, code: str, retry_after_s: float) -> None:
        super().__init__(f"{status} {code}".strip())
        self.status = status
        self.code = code
        self.retry_after_s = retry_after_s


class MatrixHttp:
    """Calls as one user, authenticated by `token`, or by `user` and `password`."""

    def __init__(
        self,
        homeserver: str,
        *,
        token: str,
        user: str,
        password: str,
        timeout_s: float,
        outgoing: Outgoing | None = None,
    ) -> None:
        self._http = PlatformHttp(homeserver, timeout_s=timeout_s, outgoing=outgoing)
        self._token = token
        self._user = user
        self._password = password
        self._logging_in = asyncio.Lock()

    async def close(self) -> None:
        """Close the session, and log out a device that we logged in ourselves."""
        try:
            if self._password and self._token:
                await self.call("POST", f"{CLIENT}/logout", json={}, timeout_s=1.0)
        except (MatrixError, NotDelivered, ChannelBroken):
            pass
        finally:  # also when the time to close is over before the server has answered
            await self._http.close()

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
        """Return the body of a successful response. Raises MatrixError, MaybeSent, ChannelBroken,
        and NotAccepted when we are not connected or logged in."""
        token = await self._valid_token()
        body = msgspec.json.encode(json) if json is not None else data
        headers = {"Authorization": f"Bearer {token}", "Content-Type": media_type}
        try:
            return await self._request(method, path, body, headers, params=query, timeout_s=timeout_s)
        except MatrixError as error:
            self._check_account(error, token)
            raise

    async def stream(self, path: str) -> AsyncIterator[bytes]:
        """Yield a response's body. Raises MatrixError, ChannelBroken, NotAccepted."""
        token = await self._valid_token()
        headers = {"Authorization": f"Bearer {token}"}
        async with self._http.download(self._http.base + path, headers=headers) as answer:
            if answer.status != 200:
                error = _read_error(answer, await answer.read())
                self._check_account(error, token)
                raise error
            async for part in answer.content.iter_chunked(PART_BYTES):
                yield part

    async def _request(
        self, method: str, path: str, body: bytes | None, headers: Mapping[str, str], **more: Any
    ) -> bytes:
        """Make one request. aiohttp repeats a PUT once if the kept connection turns out to be
        closed: all of ours have a transaction id or may be repeated."""
        data = BytesIO(body) if body else None
        answer, body = await self._http.request(method, path, data=data, headers=headers, **more)
        if answer.status != 200:
            raise _read_error(answer, body)
        return body

    async def _valid_token(self) -> str:
        async with self._logging_in:
            if not self._token:
                self._token = await self._log_in()
            return self._token

    async def _log_in(self) -> str:
        who = {"type": "m.id.user", "user": self._user}
        asked = {"type": "m.login.password", "identifier": who, "password": self._password}
        asked["initial_device_display_name"] = "Shoal"
        body = msgspec.json.encode(asked)
        headers = {"Content-Type": "application/json"}
        try:
            answer = await repeatable(self._request("POST", f"{CLIENT}/login", body, headers))
            if token := msgspec.json.decode(answer, type=Reply).access_token:
                return token
        except MatrixError as error:
            if error.status == 403 or error.code in _ACCOUNT:
                raise ChannelBroken(
                    "the homeserver refuses them: mend channels.matrix.user and channels.matrix.password"
                ) from error
            raise NotAccepted(f"cannot log in: {error}") from error
        except msgspec.DecodeError:
            pass
        raise NotAccepted("cannot log in: an answer without a token")

    def _check_account(self, error: MatrixError, token: str) -> None:
        """Raise if an error is about our account."""
        if error.code in _ACCOUNT:
            raise ChannelBroken(
                f"the homeserver has shut this user out ({error.code}): ask its administrator"
            ) from error
        if error.code not in _TOKEN_GONE and error.status != 401:
            return
        if self._password:
            if self._token == token:
                # Only if no other call has logged in meanwhile: that token is newer than the
                # refused one.
                self._token = ""
            raise NotAccepted("logged out; the next call logs in again") from error
        raise ChannelBroken(
            "the homeserver does not know this token: write a valid one into channels.matrix.access_token"
        ) from error


def client_path(*parts: str) -> str:
    """Return a path below the client-server API; ids are quoted."""
    return "/".join((CLIENT, *(quote(part, safe="") for part in parts)))


def _read_error(answer: aiohttp.ClientResponse, body: bytes) -> MatrixError:
    """Return the error of a response that is not 200; a proxy's may be of any form."""
    try:
        error = msgspec.json.decode(body, type=_ErrorBody)
    except msgspec.DecodeError:
        error = _ErrorBody()
    retry_s = (error.retry_after_ms or 0) / 1000
    retry_after = answer.headers.get("Retry-After", "")
    if not retry_s and retry_after.isdecimal():
        retry_s = float(retry_after[:6])
    return MatrixError(answer.status, error.errcode, min(max(retry_s, 0.0), 3600.0))
