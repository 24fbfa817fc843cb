"""A request to a web server and its response. Apart from `request`, whose HTTP library takes long
to import: callers of the fetcher need only this."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from urllib.parse import urlsplit

import msgspec


class WebRequest(msgspec.Struct, frozen=True):
    """A request without its URL, and its limits: unpacked body, connect, time without a byte."""

    types: Collection[str]
    method: str
    headers: Mapping[str, str]
    body: bytes | None
    body_bytes: int
    connect_s: float
    silence_s: float


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
    def host(self) -> str:
        return urlsplit(self.url).hostname or ""

    @property
    def ok(self) -> bool:
        return 200 <= self.status < 300
