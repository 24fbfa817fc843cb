"""Sends a file to the gateway, for the next message of a chat."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Final
from urllib.error import HTTPError
from urllib.parse import quote, urlsplit, urlunsplit
from urllib.request import ProxyHandler, Request, build_opener

import msgspec

from shared.errors import ShoalError
from shared.messages.web import MediaFrame
from shared.terminal_text import clean_line, size

WITHIN_S: Final = 120.0
_HTTP: Final = {"ws": "http", "wss": "https"}


class AttachFailed(ShoalError):
    """The file was not attached; the text says why."""


def upload(url: str, token: str, chat: str, file: str, *, limit_bytes: int) -> MediaFrame:
    """Upload a file for a message of `chat`; `url` is that of the web socket. Blocks for at most
    two minutes. Raises AttachFailed."""
    path = Path(file).expanduser()
    try:
        length = path.stat().st_size
        if limit_bytes and length > limit_bytes:
            raise AttachFailed(f"{path.name} has {size(length)}; the gateway takes {size(limit_bytes)}")
        content = path.read_bytes()
    except OSError as exc:
        raise AttachFailed(f"{str(path)!r} cannot be read: {exc.strerror}") from None
    headers = {
        "Authorization": f"Bearer {token}",
        "Content-Type": "application/octet-stream",
        "Shoal-File-Name": quote(path.name),
    }
    request = Request(media_address(url, chat), content, headers, method="POST")  # noqa: S310 - http(s), by _HTTP
    # As the socket: the environment's proxies are not for it
    opener = build_opener(ProxyHandler({}))
    try:
        with opener.open(request, timeout=WITHIN_S) as answer:
            return msgspec.json.decode(answer.read(), type=MediaFrame)
    except HTTPError as exc:
        with exc:
            raise AttachFailed(_reason(exc)) from None
    except (OSError, msgspec.MsgspecError) as exc:
        raise AttachFailed(f"the gateway did not take {path.name}: {clean_line(str(exc))}") from None


def media_address(url: str, chat: str) -> str:
    """Return the address for files of `chat`, of a gateway whose web socket is at `url`."""
    parts = urlsplit(url)
    path = f"{parts.path.removesuffix('/ws').rstrip('/')}/media/{chat}"
    return urlunsplit((_HTTP[parts.scheme], parts.netloc, path, "", ""))


def _reason(error: HTTPError) -> str:
    with contextlib.suppress(msgspec.MsgspecError, OSError):
        detail = msgspec.json.decode(error.read(), type=dict[str, object]).get("detail")
        if isinstance(detail, str):
            return clean_line(detail)
    return f"the gateway refused the file: HTTP {error.code}"
