"""WhatsApp, by the Cloud API of Meta: one number, which calls the webhook of any replica."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Final

import msgspec

from gateway.channels.whatsapp.api import Api
from gateway.channels.whatsapp.outgoing import CHOICES
from gateway.channels.whatsapp.parse import LAST_MESSAGE, read_call
from gateway.channels.whatsapp.render import render
from gateway.channels.whatsapp.settings import WhatsAppSettings, read_whatsapp
from gateway.channels.whatsapp.signature import challenge, is_signed
from gateway.delivery.failed_posts import failed_later
from gateway.platform.protocol import (
    Abilities,
    ChatClosed,
    HookAnswer,
    HookRequest,
    Inlet,
    Piece,
    Post,
    PostRefused,
    PostTarget,
    Rate,
    RemoteFile,
    RunMode,
)
from gateway.platform.registry import BuiltPlatform, PlatformContext
from shared.clock import SYSTEM_CLOCK, Clock
from shared.log import logger

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

HEARD_AT: Final = "heard_at"
"""The note of a place that says when (ms) the person was heard last."""

WINDOW_MS: Final = 24 * 60 * 60 * 1000
"""So long after a person's last message they may be written to. Later than that WhatsApp takes a
message and throws it away: it must not be given one."""

log = logger("whatsapp")


def make(given: PlatformContext) -> BuiltPlatform:
    """The platform of these settings. Raises SettingsError."""
    settings = read_whatsapp(given.name, given.table)
    return BuiltPlatform(WhatsApp(given.name, settings), settings)


class WhatsApp:
    """A number of the WhatsApp Business Platform."""

    abilities = ABILITIES
    run_mode: RunMode = "webhook"

    def __init__(self, name: str, settings: WhatsAppSettings, *, clock: Clock = SYSTEM_CLOCK) -> None:
        self.name = name
        self._settings = settings
        self._clock = clock
        self._api = Api(
            settings.access_token.reveal(), settings.api, settings.phone_number_id, timeout_s=settings.timeout_s
        )

    async def open(self) -> None:
        await self._api.check()

    async def close(self) -> None:
        await self._api.close()

    # --- in

    async def listen(self, inlet: Inlet, until: asyncio.Event) -> None:
        raise NotImplementedError("WhatsApp only calls")

    async def hook(self, request: HookRequest, inlet: Inlet) -> HookAnswer:
        if request.method == "GET":
            said = challenge(self._settings.verify_token.reveal(), request.query)
            return HookAnswer(403) if said is None else HookAnswer(200, said.encode())
        if not is_signed(self._settings.app_secret.reveal(), request.headers, request.body):
            return HookAnswer(401)
        try:
            told = read_call(self.name, request.body, self._settings.phone_number_id)
        except msgspec.DecodeError:
            return HookAnswer(400)
        heard_at = {HEARD_AT: str(self._clock.now_ms())}
        for heard in told.heard:
            await inlet.take(msgspec.structs.replace(heard, notes={**heard.notes, **heard_at}))
        for failed in told.failed:
            failed_later(self.name, failed.chat, str(failed.code))
        if told.strange:
            log.warning("parts of a call not read", channel=self.name, parts=told.strange)
        return HookAnswer()

    def fetch(self, file: RemoteFile) -> AsyncIterator[bytes]:
        return self._api.fetch(file.handle)

    # --- out

    def render(self, markdown: str) -> list[Piece]:
        return render(markdown)

    async def send(self, post: Post) -> str:
        heard_at = post.target.notes.get(HEARD_AT, "")
        if heard_at.isdecimal() and self._clock.now_ms() - int(heard_at) > WINDOW_MS:
            raise ChatClosed("the person wrote more than 24 hours ago")
        return await self._api.send(post)

    async def edit(self, id: str, post: Post) -> None:
        raise PostRefused("WhatsApp has no edits")

    async def find(self, post: Post) -> str | None:
        return None  # the Cloud API cannot be asked

    async def typing(self, target: PostTarget) -> None:
        if message_id := target.notes.get(LAST_MESSAGE):
            await self._api.typing(message_id)
