"""Discord: one bot, whose gateway connection is held by one replica at a time; direct messages,
channels and threads."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Final

from gateway.channels.discord.api import DiscordApi
from gateway.channels.discord.listener import DiscordListener
from gateway.channels.discord.parse import DiscordIdentity
from gateway.channels.discord.render import render_reply
from gateway.channels.discord.settings import DiscordSettings, read_discord
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
from gateway.platform.registry import BuiltPlatform, Cursor, PlatformContext

ABILITIES: Final = Abilities(
    run_modes=("exclusive",),
    resend_guard="key",
    edit_every_s=1.5,
    typing_every_s=8.0,
    buttons=25,
    media=True,
    threads=True,
    # Fifty calls a second in all (docs.discord.com/developers/topics/rate-limits), also those that are no messages; of
    # a channel it says by its headers that it takes five messages in five seconds, and as many
    # edits.
    rates=(Rate("bot", 35.0, 10), Rate("chat", 0.7, 2, "posts"), Rate("chat", 0.7, 2, "edits")),
)


def make(given: PlatformContext) -> BuiltPlatform:
    """Build the platform from its settings. Raises SettingsError."""
    settings = read_discord(given.name, given.table)
    return BuiltPlatform(DiscordChannel(given.name, settings, given.cursor), settings)


class DiscordChannel:
    """A Discord bot."""

    abilities = ABILITIES

    def __init__(self, name: str, settings: DiscordSettings, cursor: Cursor) -> None:
        self.name = name
        self.run_mode: RunMode = settings.run or "exclusive"
        self._settings = settings
        self._cursor = cursor
        self._me = DiscordIdentity("", "")
        self._api = DiscordApi(
            name,
            settings.token.reveal(),
            settings.api,
            files_from=settings.files_from,
            timeout_s=settings.timeout_s,
        )

    async def open(self) -> None:
        self._me = await self._api.identify()

    async def close(self) -> None:
        await self._api.close()

    # --- in

    async def listen(self, inlet: Inlet, until: asyncio.Event) -> None:
        await DiscordListener(self.name, self._settings, self._api, self._me, self._cursor).run(inlet, until)

    async def hook(self, request: HookRequest, inlet: Inlet) -> HookAnswer:
        return HookAnswer(404)  # Discord tells of messages through its gateway alone

    def fetch(self, file: RemoteFile) -> AsyncIterator[bytes]:
        return self._api.fetch(file.handle)

    # --- out

    def render(self, markdown: str) -> list[Piece]:
        return render_reply(markdown)

    async def send(self, post: Post) -> str:
        return await self._api.send(post)

    async def edit(self, id: str, post: Post) -> None:
        await self._api.edit(id, post)

    async def find(self, post: Post) -> str | None:
        return None  # the key of a post is enough

    async def typing(self, target: PostTarget) -> None:
        await self._api.typing(target)
