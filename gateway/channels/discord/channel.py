"""Discord: one bot, whose gateway connection is held by one replica at a time."""

from __future__ import annotations

import asyncio
from typing import Final

from gateway.channels.discord.api import DiscordApi
from gateway.channels.discord.listener import DiscordListener
from gateway.channels.discord.parse import DiscordIdentity
from gateway.channels.discord.render import render_reply
from gateway.channels.discord.settings import DiscordSettings, read_discord
from gateway.channels.unsupported import cannot_find, cannot_hook
from gateway.platform.protocol import Abilities, Inlet, Rate, RunMode
from gateway.platform.registry import BuiltPlatform, Cursor, PlatformContext

ABILITIES: Final = Abilities(
    run_modes=("exclusive",),
    resend_guard="key",
    edit_every_s=1.5,
    typing_every_s=8.0,
    buttons=25,
    media=True,
    threads=True,
    # Fifty calls a second in all (docs.discord.com/developers/topics/rate-limits), also those that
    # are no messages; of a channel it says by its headers that it takes five messages in five
    # seconds, and as many edits.
    rates=(Rate("bot", 35.0, 10), Rate("chat", 0.7, 2, "posts"), Rate("chat", 0.7, 2, "edits")),
)


def make(given: PlatformContext) -> BuiltPlatform:
    """Build the platform from its settings. Raises SettingsError."""
    settings = read_discord(given.name, given.table)
    return BuiltPlatform(DiscordChannel(given.name, settings, given.cursor), settings)


class DiscordChannel:
    """A Discord bot."""

    abilities = ABILITIES
    render = staticmethod(render_reply)
    find = staticmethod(cannot_find)
    hook = staticmethod(cannot_hook)

    def __init__(self, name: str, settings: DiscordSettings, cursor: Cursor) -> None:
        self.name = name
        self.run_mode: RunMode = settings.run or "exclusive"
        self._settings = settings
        self._cursor = cursor
        self._me = DiscordIdentity("", "")
        self._api = api = DiscordApi(
            name, settings.token.reveal(), settings.api, files_from=settings.files_from, timeout_s=settings.timeout_s
        )
        self.close, self.send, self.edit = api.close, api.send, api.edit
        self.typing, self.fetch = api.typing, api.fetch

    async def open(self) -> None:
        self._me = await self._api.identify()

    async def listen(self, inlet: Inlet, until: asyncio.Event) -> None:
        await DiscordListener(self.name, self._settings, self._api, self._me, self._cursor).run(inlet, until)
