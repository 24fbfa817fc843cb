"""Telegram: one bot, by long polling on one replica or by a webhook on any."""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import AsyncIterator
from typing import Final

import msgspec

from gateway.channels.telegram.api import Api
from gateway.channels.telegram.parse import Me, Update, heard, read_update
from gateway.channels.telegram.render import render
from gateway.channels.telegram.settings import TelegramSettings, read_telegram
from gateway.platform.protocol import (
    Abilities,
    HookAnswer,
    HookRequest,
    Inlet,
    Piece,
    Post,
    PostTarget,
    Rate,
    RemoteFile,
    RunMode,
)
from gateway.platform.registry import BuiltPlatform, PlatformContext
from shared.tasks import cancel_all

TOLD_IN: Final = "x-telegram-bot-api-secret-token"

ABILITIES: Final = Abilities(
    run_modes=("exclusive", "webhook"),
    resend_guard="nothing",
    edit_every_s=1.5,
    typing_every_s=4.5,
    buttons=8,
    media=True,
    threads=True,
    # About one a second in a chat, with short bursts, twenty a minute in a group, thirty a second in all
    # (core.telegram.org/bots/faq). Nothing there says that edits are counted apart.
    rates=(Rate("bot", 25.0, 5), Rate("chat", 1.0, 4), Rate("group", 0.25, 5)),
)


def make(given: PlatformContext) -> BuiltPlatform:
    """The platform of these settings. Raises SettingsError."""
    settings = read_telegram(given.name, given.table)
    return BuiltPlatform(Telegram(given.name, settings), settings)


class Telegram:
    """A bot of Telegram."""

    abilities = ABILITIES

    def __init__(self, name: str, settings: TelegramSettings) -> None:
        self.name = name
        self.run_mode: RunMode = settings.run or "exclusive"
        self._settings = settings
        self._api = Api(settings.token.reveal(), settings.api, timeout_s=settings.timeout_s)
        self._me = Me(0, "")

    async def open(self) -> None:
        self._me = await self._api.me()
        if self.run_mode == "webhook" and self._settings.public_url and self._settings.webhook_secret is not None:
            await self._api.hear_by_webhook(self._settings.public_url, self._settings.webhook_secret.reveal())

    async def close(self) -> None:
        await self._api.close()

    # --- in

    async def listen(self, inlet: Inlet, until: asyncio.Event) -> None:
        """Ask, take, and confirm with the next question. What was not confirmed is told again, to
        whoever asks next."""
        await self._api.hear_by_asking()
        after, ending = 0, asyncio.create_task(until.wait())
        try:
            while not until.is_set():
                asking = asyncio.create_task(self._api.updates(after, self._settings.poll_s))
                try:
                    await asyncio.wait({asking, ending}, return_when=asyncio.FIRST_COMPLETED)
                    if not asking.done():
                        return
                    for update in asking.result():
                        await self._take(update, inlet)
                        after = update.update_id
                finally:
                    await cancel_all([asking])
            if after:
                await self._api.updates(after, 0)  # confirms; what comes with it is told again
        finally:
            await cancel_all([ending])

    async def hook(self, request: HookRequest, inlet: Inlet) -> HookAnswer:
        assert self._settings.webhook_secret is not None
        given = request.headers.get(TOLD_IN, "")
        if not hmac.compare_digest(given.encode(), self._settings.webhook_secret.reveal().encode()):
            return HookAnswer(401)
        try:
            update = read_update(request.body)
        except msgspec.DecodeError:
            return HookAnswer(400)
        await self._take(update, inlet)
        return HookAnswer()

    async def _take(self, update: Update, inlet: Inlet) -> None:
        told = heard(self.name, update, self._me)
        if told is not None:
            await inlet.take(told)
        if update.callback_query is not None:
            await self._api.pressed(update.callback_query.id)

    def fetch(self, file: RemoteFile) -> AsyncIterator[bytes]:
        return self._api.fetch(file.handle)

    # --- out

    def render(self, markdown: str) -> list[Piece]:
        return render(markdown)

    async def send(self, post: Post) -> str:
        return await self._api.send(post)

    async def edit(self, id: str, post: Post) -> None:
        await self._api.edit(id, post)

    async def find(self, post: Post) -> str | None:
        return None  # the Bot API cannot be asked

    async def typing(self, target: PostTarget) -> None:
        await self._api.typing(target.chat_id, target.thread)
