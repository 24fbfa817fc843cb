"""WhatsApp, through Meta's Cloud API: one phone number, which calls the webhook of any replica."""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import AsyncIterator
from typing import Any, Final
from urllib.parse import urlsplit

import aiohttp
import msgspec
from msgspec.structs import replace

from gateway.channels.http import PART_BYTES, PlatformHttp, repeatable
from gateway.channels.unsupported import cannot_edit, cannot_find, cannot_listen
from gateway.channels.whatsapp.outgoing import CHOICES, Content, file_message, is_supported, read_receipt, text_message
from gateway.channels.whatsapp.parse import LAST_MESSAGE, read_call
from gateway.channels.whatsapp.refusals import map_error
from gateway.channels.whatsapp.render import render_reply
from gateway.channels.whatsapp.settings import WhatsAppSettings, read_whatsapp
from gateway.platform.protocol import (
    Abilities,
    ChannelBroken,
    ChatClosed,
    File,
    HookAnswer,
    HookRequest,
    Inlet,
    MaybeSent,
    NotAccepted,
    Post,
    PostRefused,
    PostTarget,
    Rate,
    RemoteFile,
    RunMode,
)
from gateway.platform.registry import BuiltPlatform, PlatformContext
from shared.clock import SYSTEM_CLOCK, Clock
from shared.ids import log_id, session_id
from shared.log import logger
from shared.metrics import DELIVERY_FAILED_LATER, MESSAGES_REFUSED
from shared.network.outgoing import for_channel
from shared.version import VERSION

ABILITIES: Final = Abilities(
    run_modes=("webhook",),
    resend_guard="nothing",
    typing_every_s=20.0,  # the sign goes out by itself after 25 s
    buttons=CHOICES,
    media=True,
    # 80 a second of a number; to one person one in six seconds, and up to 45 that are borrowed from
    # those to come.
    rates=(Rate("bot", 60.0, 20), Rate("chat", 1 / 6, 40)),
)

WRITTEN_AT: Final = "heard_at"
"""Note of a place: the time (ms) at which the person last wrote."""

WINDOW_MS: Final = 24 * 60 * 60 * 1000
"""People may be written to for this long after their last message. WhatsApp accepts a later message
and silently discards it, so it must not be sent."""

UNREADABLE: Final = "unreadable"  # reason of a message whose form is not known

SIGNATURE: Final = "x-hub-signature-256"

_HANDLE: Final = re.compile(r"[0-9A-Za-z_-]{1,128}")
_FILES_AT: Final = ".fbsbx.com"

log = logger("whatsapp")
delivery_log = logger("delivery")


class _MediaId(msgspec.Struct, frozen=True):
    id: str


class _MediaUrl(msgspec.Struct, frozen=True):
    url: str


class _SentMessages(msgspec.Struct, frozen=True):
    messages: tuple[_MediaId, ...]


def make(given: PlatformContext) -> BuiltPlatform:
    """Build the platform from its settings. Raises SettingsError."""
    settings = read_whatsapp(given.name, given.table)
    return BuiltPlatform(WhatsAppChannel(given.name, settings), settings)


class WhatsAppChannel:
    """A number of the WhatsApp Business Platform."""

    abilities = ABILITIES
    render = staticmethod(render_reply)
    listen = staticmethod(cannot_listen)
    edit = staticmethod(cannot_edit)
    find = staticmethod(cannot_find)
    run_mode: RunMode = "webhook"

    def __init__(self, name: str, settings: WhatsAppSettings, *, clock: Clock = SYSTEM_CLOCK) -> None:
        self.name = name
        self._settings = settings
        self._clock = clock
        self._number = settings.phone_number_id
        token = settings.access_token.reveal()
        self._http = PlatformHttp(
            settings.api,
            timeout_s=settings.timeout_s,
            connect_s=settings.timeout_s / 2,
            answer_bytes=256 * 1024,
            headers={"Authorization": f"Bearer {token}", "User-Agent": f"shoal/{VERSION}"},
            outgoing=for_channel(settings.proxy),
        )

    async def close(self) -> None:
        await self._http.close()

    async def open(self) -> None:
        """Check that the number exists and is ours. Raises ChannelBroken, NotAccepted."""
        try:
            await repeatable(self._call("GET", self._number, params={"fields": "id"}))
        except PostRefused as exc:
            raise ChannelBroken(
                f"WhatsApp does not know this number ({exc.reason}); look at channels.whatsapp.phone_number_id"
            ) from exc

    async def hook(self, request: HookRequest, inlet: Inlet) -> HookAnswer:
        if request.method == "GET":
            given = request.query.get("hub.verify_token", "").encode(errors="surrogatepass")
            knows = hmac.compare_digest(given, self._settings.verify_token.reveal().encode())
            if not knows or request.query.get("hub.mode") != "subscribe":
                return HookAnswer(403)
            return HookAnswer(200, request.query.get("hub.challenge", "").encode())
        # It covers no time: a replayed call has a valid one; its messages are known by their ids.
        signed = signature(self._settings.app_secret.reveal(), request.body)
        if not hmac.compare_digest(request.headers.get(SIGNATURE, "").encode(), signed.encode()):
            return HookAnswer(401)
        try:
            call = read_call(self.name, request.body, self._number)
        except msgspec.DecodeError:
            return HookAnswer(400)
        written_at = {WRITTEN_AT: str(self._clock.now_ms())}
        for message in call.messages:
            await inlet.take(replace(message, notes={**message.notes, **written_at}))
        for failed in call.failed:
            # Nothing is sent again: the line is not known any more.
            DELIVERY_FAILED_LATER.labels(self.name).inc()
            session = log_id(session_id(self.name, failed.chat)) if failed.chat else None
            delivery_log.warning("post failed later", channel=self.name, session=session, reason=str(failed.code))
        if call.unreadable_parts:
            MESSAGES_REFUSED.labels(self.name, UNREADABLE).inc(call.unreadable_parts)
            log.warning("parts of a call not read", channel=self.name, parts=call.unreadable_parts)
        return HookAnswer()

    async def send(self, post: Post) -> str:
        written_at = post.target.notes.get(WRITTEN_AT, "")
        if written_at.isdecimal() and self._clock.now_ms() - int(written_at) > WINDOW_MS:
            raise ChatClosed("the person wrote more than 24 hours ago")
        body = await self._post_message(await self._message_body(post))
        try:
            return msgspec.json.decode(body, type=_SentMessages).messages[0].id
        except (msgspec.DecodeError, IndexError) as exc:
            raise MaybeSent("an answer without an id") from exc

    async def typing(self, target: PostTarget) -> None:
        if message_id := target.notes.get(LAST_MESSAGE):
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
        data = msgspec.json.encode(content)
        headers = {"Content-Type": "application/json"}
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
            asked = urlsplit(url)
            known = urlsplit(self._http.base)
            place = asked.scheme, asked.hostname, asked.port
            if place == (known.scheme, known.hostname, known.port):
                return True
            encrypted = asked.scheme == "https" and asked.port in (None, 443)
            return encrypted and f".{asked.hostname}".endswith(_FILES_AT)
        except ValueError:
            return False


def signature(secret: str, body: bytes) -> str:
    """Return the header for a body (developers.facebook.com/docs/graph-api/webhooks)."""
    return "sha256=" + hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()
