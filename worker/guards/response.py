"""A fetched response, and the limits of one request.

Apart from `request`, whose HTTP library takes long to import: callers of the fetcher need only
this.
"""

from __future__ import annotations

import msgspec


class WebResponse(msgspec.Struct, frozen=True):
    """A server's response. `url` is where the last redirect led; `cut` means that the body was
    longer than what is kept. The body of an error (a status other than 2xx) is not read."""

    url: str
    status: int
    type: str = ""
    charset: str = ""
    body: bytes = b""
    cut: bool = False

    @property
    def ok(self) -> bool:
        return 200 <= self.status < 300


class FetchLimits(msgspec.Struct, frozen=True):
    """Limits of one request: size of the body after decompression, time to connect, and time
    without a byte."""

    body_bytes: int
    connect_s: float
    silence_s: float
