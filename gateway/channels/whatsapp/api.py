"""The Graph API: one try a call, every error as one that Shoal knows."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from typing import Any, Final
from urllib.parse import urlsplit

import aiohttp
import msgspec

from gateway.channels.whatsapp.outgoing import Content, can_go, file_message, not_sent, seen, text_message
from gateway.channels.whatsapp.refusals import refusal
from gateway.platform.protocol import ChannelBroken, File, MaybeSent, NotAccepted, Post, PostRefused
from shared.version import VERSION

ANSWER_BYTES: Final = 256 * 1024
PART_BYTES: Final = 64 * 1024

_HANDLE: Final = re.compile(r"[0-9A-Za-z_-]{1,128}")
_FILES_AT: Final = ".fbsbx.com"


class _Id(msgspec.Struct, frozen=True):
    id: str


class _Sent(msgspec.Struct, frozen=True):
    messages: tuple[_Id, ...]


class _Where(msgspec.Struct, frozen=True):
    url: str


class Api:
    """One number. `base` is the address of the Graph API with its version, `timeout_s` is for a
    whole call."""

    def __init__(self, token: str, base: str, phone_number_id: str, *, timeout_s: float) -> None:
        self._headers = {"Authorization": f"Bearer {token}", "User-Agent": f"shoal/{VERSION}"}
        self._base = base.rstrip("/")
        self._number = phone_number_id
        self._timeout_s = timeout_s
        self._session: aiohttp.ClientSession | None = None

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def check(self) -> None:
        """Whether the number is there, and ours. Raises ChannelBroken, NotAccepted."""
        try:
            await self._call("GET", self._number, params={"fields": "id"})
        except PostRefused as exc:
            raise ChannelBroken(
                f"WhatsApp does not know this number ({exc.reason}); look at channels.whatsapp.phone_number_id"
            ) from exc
        except MaybeSent as exc:
            raise NotAccepted(exc.reason) from exc

    async def send(self, post: Post) -> str:
        """The id of what was sent. Raises NotDelivered, ChannelBroken."""
        body = await self._say(await self._content(post))
        try:
            return msgspec.json.decode(body, type=_Sent).messages[0].id
        except (msgspec.DecodeError, IndexError) as exc:
            raise MaybeSent("an answer without an id") from exc

    async def typing(self, message_id: str) -> None:
        """Say that this message was read, and that an answer is under way. Raises NotDelivered,
        ChannelBroken."""
        await self._say(seen(message_id))

    async def fetch(self, handle: str) -> AsyncIterator[bytes]:
        """The bytes of a file. Raises NotDelivered."""
        if not _HANDLE.fullmatch(handle):
            raise PostRefused("the id of a file has a strange form")
        try:
            body = await self._call("GET", handle, params={"phone_number_id": self._number})
            url = msgspec.json.decode(body, type=_Where).url
        except ChannelBroken as exc:
            raise NotAccepted(str(exc)) from exc
        except msgspec.DecodeError as exc:
            raise NotAccepted("an answer without the address of the file") from exc
        if not self._may_have_token(url):
            raise PostRefused("the file is at an address that is none of WhatsApp's")
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=self._timeout_s, sock_read=self._timeout_s)
        try:
            async with self._http().get(url, headers=self._headers, timeout=timeout, allow_redirects=False) as answer:
                if answer.status != 200:
                    raise NotAccepted(f"{answer.status} instead of a file")
                async for part in answer.content.iter_chunked(PART_BYTES):
                    yield part
        except (aiohttp.ClientError, TimeoutError) as exc:
            raise NotAccepted(type(exc).__name__) from exc

    async def _content(self, post: Post) -> Content:
        if post.file is None:
            return text_message(post, post.text)
        if not can_go(post.file):
            return text_message(post, not_sent(post.file))
        return file_message(post, post.file, await self._upload(post.file))

    async def _upload(self, file: File) -> str:
        """The id of the file there. Nobody sees it yet: whatever went wrong, it is surely not
        shown."""
        form = aiohttp.FormData({"messaging_product": "whatsapp", "type": file.media_type})
        form.add_field("file", file.data, filename=file.name, content_type=file.media_type)
        try:
            body = await self._call("POST", f"{self._number}/media", data=form)
            return msgspec.json.decode(body, type=_Id).id
        except (MaybeSent, msgspec.DecodeError) as exc:
            raise NotAccepted("the file could not be uploaded") from exc

    async def _say(self, content: Content) -> bytes:
        headers = {"Content-Type": "application/json"}
        return await self._call("POST", f"{self._number}/messages", data=msgspec.json.encode(content), headers=headers)

    async def _call(self, method: str, path: str, *, headers: dict[str, str] | None = None, **more: Any) -> bytes:
        """The answer of a call that succeeded. Raises NotDelivered, ChannelBroken."""
        try:
            async with self._http().request(
                method,
                f"{self._base}/{path}",
                headers=self._headers | (headers or {}),
                allow_redirects=False,
                **more,
            ) as answer:
                body = bytearray()
                async for part in answer.content.iter_chunked(PART_BYTES):
                    body += part
                    if len(body) > ANSWER_BYTES:
                        raise MaybeSent("an answer that is far too long")
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as exc:
            raise NotAccepted("no connection") from exc
        except (aiohttp.ClientError, TimeoutError) as exc:
            raise MaybeSent("no answer") from exc
        if answer.status != 200:
            raise refusal(answer.status, bytes(body))
        return bytes(body)

    def _may_have_token(self, url: str) -> bool:
        """Whether this is the server that we talk to anyway, or where WhatsApp has its files."""
        try:
            asked, known = urlsplit(url), urlsplit(self._base)
            if (asked.scheme, asked.hostname, asked.port) == (known.scheme, known.hostname, known.port):
                return True
            return asked.scheme == "https" and asked.port in (None, 443) and f".{asked.hostname}".endswith(_FILES_AT)
        except ValueError:
            return False

    def _http(self) -> aiohttp.ClientSession:
        """Made with the first call: a session belongs to the running loop."""
        if self._session is None:
            self._session = aiohttp.ClientSession(
                cookie_jar=aiohttp.DummyCookieJar(),
                timeout=aiohttp.ClientTimeout(total=self._timeout_s, sock_connect=self._timeout_s / 2),
                trust_env=False,
            )
        return self._session
