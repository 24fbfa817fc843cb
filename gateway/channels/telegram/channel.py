"""Telegram: one bot, by long polling on one replica or by a webhook on any replica."""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import AsyncIterator
from typing import Final

import msgspec

from gateway.channels.telegram.api import TelegramApi
from gateway.channels.telegram.parse import TelegramIdentity, parse_update
from gateway.channels.telegram.render import render_reply
from gateway.channels.telegram.settings import TelegramSettings, read_telegram
from gateway.channels.telegram.wire import Update, decode_update
from gateway.channels.unsupported import cannot_find
from gateway.platform.protocol import (
    Abilities,
    HookAnswer,
    HookRequest,
    Inlet,
    Post,
    PostTarget,
    Rate,
    RemoteFile,
    RunMode,
)
from gateway.platform.registry import BuiltPlatform, PlatformContext
from shared.network.outgoing import for_channel
from shared.tasks import until_first

WEBHOOK_HEADER: Final = "x-telegram-bot-api-secret-token"

ABILITIES: Final = Abilities(
    run_modes=("exclusive", "webhook"),
    resend_guard="nothing",
    edit_every_s=1.5,
    typing_every_s=4.5,
    buttons=8,
    media=True,
    threads=True,
    # About one a second in a chat, with short bursts, twenty a minute in a group, thirty a second
    # in all (core.telegram.org/bots/faq). Nothing there says that edits are counted apart.
    rates=(Rate("bot", 25.0, 5), Rate("chat", 1.0, 4), Rate("group", 0.25, 5)),
)


def make(given: PlatformContext) -> BuiltPlatform:
    """Build the platform from its settings. Raises SettingsError."""
    settings = read_telegram(given.name, given.table)
    return BuiltPlatform(TelegramChannel(given.name, settings), settings)


class TelegramChannel:
    """A Telegram bot."""

    abilities = ABILITIES
    render = staticmethod(render_reply)
    find = staticmethod(cannot_find)

    def __init__(self, name: str, settings: TelegramSettings) -> None:
        self.name = name
        self.run_mode: RunMode = settings.run or "exclusive"
        self._settings = settings
        token = settings.token.reveal()
        self._api = TelegramApi(token, settings.api, timeout_s=settings.timeout_s, outgoing=for_channel(settings.proxy))
        self._me = TelegramIdentity(0, "")

    def fetch(self, file: RemoteFile) -> AsyncIterator[bytes]:
        """Yield the bytes of a file that a person sent. Raises NotDelivered."""
        return self._api.fetch(file)

    async def close(self) -> None:
        await self._api.close()

    async def send(self, post: Post) -> str:
        """Send a post and return its id. Raises NotDelivered."""
        return await self._api.send(post)

    async def edit(self, id: str, post: Post) -> None:
        """Replace a message with a post. Raises NotDelivered."""
        await self._api.edit(id, post)

    async def typing(self, target: PostTarget) -> None:
        await self._api.typing(target)

    async def open(self) -> None:
        self._me = await self._api.identify()
        url = self._settings.public_url
        secret = self._settings.webhook_secret
        if self.run_mode == "webhook" and url and secret is not None:
            await self._api.set_webhook(url, secret.reveal())

    async def listen(self, inlet: Inlet, until: asyncio.Event) -> None:
        """Poll, accept, and confirm with the next poll. Telegram repeats what is not confirmed."""
        await self._api.delete_webhook()
        after = 0
        while not until.is_set():
            asking = asyncio.create_task(self._api.get_updates(after, self._settings.poll_s))
            await until_first(asking, asyncio.create_task(until.wait()))
            if asking.cancelled():
                return
            for update in asking.result():
                await self._accept_update(update, inlet)
                # Only after the inlet has made it durable: asking beyond this number deletes the
                # update at Telegram.
                after = update.update_id
        if after:
            await self._api.get_updates(after, 0)  # confirms; what comes with it is told again

    async def hook(self, request: HookRequest, inlet: Inlet) -> HookAnswer:
        assert self._settings.webhook_secret is not None
        given = request.headers.get(WEBHOOK_HEADER, "")
        if not hmac.compare_digest(given.encode(), self._settings.webhook_secret.reveal().encode()):
            return HookAnswer(401)
        try:
            update = decode_update(request.body)
        except msgspec.DecodeError:
            return HookAnswer(400)
        await self._accept_update(update, inlet)
        return HookAnswer()

    async def _accept_update(self, update: Update, inlet: Inlet) -> None:
        message = parse_update(self.name, update, self._me)
        if message is not None:
            await inlet.take(message)
        if update.callback_query is not None:
            await self._api.confirm_press(update.callback_query.id)
