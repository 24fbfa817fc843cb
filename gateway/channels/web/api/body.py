"""Reading the body of a request: within a limit, within a time, and few big ones at once."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Final

from starlette.requests import ClientDisconnect, Request

from gateway.channels.web.api.errors import ApiError

SMALL_BYTES: Final = 256 * 1024
BIG_AT_ONCE: Final = 8
REST_S: Final = 2.0
"""How long the rest of a body that is too big is read, so that its client hears why: many listen
only then."""


class BodyReader:
    """Reads bodies. Those that are not known to be small wait for each other."""

    def __init__(self, *, limit_bytes: int, within_s: float) -> None:
        self._limit_bytes = limit_bytes
        self._within_s = within_s
        self._big = asyncio.Semaphore(BIG_AT_ONCE)

    async def read_body(self, request: Request) -> bytes:
        """Raises ApiError: 413, 415, 408, and 400 when the client has gone."""
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != "application/json" or request.headers.get("content-encoding", "identity").lower() != "identity":
            raise ApiError(415, "send JSON, with Content-Type: application/json and no Content-Encoding")
        told = request.headers.get("content-length", "")
        size = int(told) if told.isascii() and told.isdigit() else self._limit_bytes
        try:
            async with asyncio.timeout(self._within_s):
                if size <= SMALL_BYTES:
                    return await request.body()
                async with self._big:
                    return await self._read_big(request, size)
        except TimeoutError:
            raise ApiError(408, f"the body did not come within {self._within_s:g} s") from None
        except ClientDisconnect:
            raise ApiError(400, "the body did not come whole") from None

    async def _read_big(self, request: Request, size: int) -> bytes:
        data = bytearray()
        pieces = request.stream()
        if size <= self._limit_bytes:
            async for piece in pieces:
                data += piece
                if len(data) > self._limit_bytes:
                    break
            else:
                return bytes(data)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(REST_S):
                left = self._limit_bytes
                async for piece in pieces:
                    left -= len(piece)
                    if left < 0:
                        break
        raise ApiError(413, f"the body has more than {self._limit_bytes:,} bytes", code="too_big")
