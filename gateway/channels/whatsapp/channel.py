"""WhatsApp, through Meta's Cloud API: one phone number, which calls the webhook of any replica."""

from __future__ import annotations

import hashlib
import hmac
from typing import Final

import msgspec
from msgspec.structs import replace

from gateway.channels.unsupported import cannot_edit, cannot_find, cannot_listen
from gateway.channels.whatsapp.api import WhatsAppApi
from gateway.channels.whatsapp.outgoing import CHOICES
from gateway.channels.whatsapp.parse import LAST_MESSAGE, read_call
from gateway.channels.whatsapp.render import render_reply
from gateway.channels.whatsapp.settings import WhatsAppSettings, read_whatsapp
from gateway.platform.protocol import (
    Abilities,
    ChatClosed,
    HookAnswer,
    HookRequest,
    Inlet,
    Post,
    PostTarget,
    Rate,
    RunMode,
)
from gateway.platform.registry import BuiltPlatform, PlatformContext
from shared.clock import SYSTEM_CLOCK, Clock
from shared.ids import log_id, session_id
from shared.log import logger
from shared.metrics import DELIVERY_FAILED_LATER

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

SIGNATURE: Final = "x-hub-signature-256"

log = logger("whatsapp")
delivery_log = logger("delivery")


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
        token, number = settings.access_token.reveal(), settings.phone_number_id
        self._api = WhatsAppApi(token, settings.api, number, timeout_s=settings.timeout_s)
        self.open, self.close, self.fetch = self._api.open, self._api.close, self._api.fetch

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
            call = read_call(self.name, request.body, self._settings.phone_number_id)
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
            log.warning("parts of a call not read", channel=self.name, parts=call.unreadable_parts)
        return HookAnswer()

    async def send(self, post: Post) -> str:
        written_at = post.target.notes.get(WRITTEN_AT, "")
        if written_at.isdecimal() and self._clock.now_ms() - int(written_at) > WINDOW_MS:
            raise ChatClosed("the person wrote more than 24 hours ago")
        return await self._api.send(post)

    async def typing(self, target: PostTarget) -> None:
        if message_id := target.notes.get(LAST_MESSAGE):
            await self._api.typing(message_id)


def signature(secret: str, body: bytes) -> str:
    """Return the header for a body (developers.facebook.com/docs/graph-api/webhooks)."""
    return "sha256=" + hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()
