"""Client of the Graph API: one try a call; failures become errors of the platform protocol."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from typing import Any, Final
from urllib.parse import urlsplit

import aiohttp
import msgspec

from gateway.channels.http import PART_BYTES, PlatformHttp, repeatable
from gateway.channels.whatsapp.outgoing import (
    Content,
    file_message,
    is_supported,
    read_receipt,
    text_message,
)
from gateway.channels.whatsapp.refusals import map_error
from gateway.platform.protocol import ChannelBroken, File, MaybeSent, NotAccepted, Post, PostRefused, RemoteFile
from shared.version import VERSION

_HANDLE: Final = re.compile(r"[0-9A-Za-z_-]{1,128}")
_FILES_AT: Final = ".fbsbx.com"


class _MediaId(msgspec.Struct, frozen=True):
    id: str


class _MediaUrl(msgspec.Struct, frozen=True):
    url: str


class _SentMessages(msgspec.Struct, frozen=True):
    messages: tuple[_MediaId, ...]


class WhatsAppApi:
    """A client for one number. `base` has the API's version; `timeout_s` limits a whole call."""

    def __init__(self, token: str, base: str, phone_number_id: str, *, timeout_s: float) -> None:
        self._number = phone_number_id
        self._http = PlatformHttp(
            base,
            timeout_s=timeout_s,
            connect_s=timeout_s / 2,
            answer_bytes=256 * 1024,
            headers={"Authorization": f"Bearer {token}", "User-Agent": f"shoal/{VERSION}"},
        )
        self.close = self._http.close

    async def open(self) -> None:
        """Check that the number exists and is ours. Raises ChannelBroken, NotAccepted."""
        try:
            await repeatable(self._call("GET", self._number, params={"fields": "id"}))
        except PostRefused as exc:
            raise ChannelBroken(
                f"WhatsApp does not know this number ({exc.reason}); look at channels.whatsapp.phone_number_id"
            ) from exc

    async def send(self, post: Post) -> str:
        """Send a post and return its id. Raises NotDelivered, ChannelBroken."""
        body = await self._post_message(await self._message_body(post))
        try:
            return msgspec.json.decode(body, type=_SentMessages).messages[0].id
        except (msgspec.DecodeError, IndexError) as exc:
            raise MaybeSent("an answer without an id") from exc

    async def typing(self, message_id: str) -> None:
        """Mark it as read and show the typing indicator. Raises NotDelivered, ChannelBroken."""
        await self._post_message(read_receipt(message_id))

    async def fetch(self, file: RemoteFile) -> AsyncIterator[bytes]:
        """Yield the bytes of a file. Raises NotDelivered."""
        if not _HANDLE.fullmatch(file.handle):
            raise PostRefused("the id of a file has a strange form")
        try:
            body = await self._call("GET", file.handle, params={"phone_number_id": self._number})
            url = msgspec.json.decode(body, type=_MediaUrl).url
        except ChannelBroken as exc:
            raise NotAccepted(str(exc)) from exc
        except msgspec.DecodeError as exc:
            raise NotAccepted("an answer without the address of the file") from exc
        if not self._may_have_token(url):
            raise PostRefused("the file is at an address that is none of WhatsApp's")
        async with self._http.download(url) as answer:
            if answer.status != 200:
                raise NotAccepted(f"{answer.status} instead of a file")
            async for part in answer.content.iter_chunked(PART_BYTES):
                yield part

    async def _message_body(self, post: Post) -> Content:
        if post.file is None:
            return text_message(post, post.text)
        if not is_supported(post.file):
            note = f"[file: {post.file.name}, of a kind that WhatsApp does not take]"
            return text_message(post, note)
        return file_message(post, post.file, await self._upload(post.file))

    async def _upload(self, file: File) -> str:
        """Upload a file and return its id. Nobody sees it yet, so a failure is certain."""
        form = aiohttp.FormData({"messaging_product": "whatsapp", "type": file.media_type})
        form.add_field("file", file.data, filename=file.name, content_type=file.media_type)
        try:
            body = await self._call("POST", f"{self._number}/media", data=form)
            return msgspec.json.decode(body, type=_MediaId).id
        except (MaybeSent, msgspec.DecodeError) as exc:
            raise NotAccepted("the file could not be uploaded") from exc

    async def _post_message(self, content: Content) -> bytes:
        data, headers = msgspec.json.encode(content), {"Content-Type": "application/json"}
        return await self._call("POST", f"{self._number}/messages", data=data, headers=headers)

    async def _call(self, method: str, path: str, **more: Any) -> bytes:
        """Return the body of a successful call. Raises NotDelivered, ChannelBroken."""
        answer, body = await self._http.request(method, f"/{path}", **more)
        if answer.status != 200:
            raise map_error(answer.status, body)
        return body

    def _may_have_token(self, url: str) -> bool:
        """Return whether a URL is on the server that we call anyway, or among WhatsApp's files."""
        try:
            asked, known = urlsplit(url), urlsplit(self._http.base)
            place = asked.scheme, asked.hostname, asked.port
            if place == (known.scheme, known.hostname, known.port):
                return True
            encrypted = asked.scheme == "https" and asked.port in (None, 443)
            return encrypted and f".{asked.hostname}".endswith(_FILES_AT)
        except ValueError:
            return False
