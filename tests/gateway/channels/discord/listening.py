"""A bot that listens to the fake Discord, for tests: an inlet that remembers, and a cursor in memory."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any, Final

from gateway.channels.discord.api import DiscordApi
from gateway.channels.discord.channel import DiscordListener
from gateway.channels.discord.settings import read_discord
from gateway.channels.discord.wire import DiscordIdentity
from gateway.platform.protocol import InletVerdict, PlatformMessage
from shared.messages.inbound import InboundMessage
from tests.fakes.discord import BOT, GUILD, TOKEN, FakeDiscord
from tests.helpers.wait import eventually

ANNA: Final = {"id": "300000000000000001", "username": "anna", "global_name": "Anna"}
ALONE, OTHER = "400000000000000001", "400000000000000002"
CHANNEL, THREAD = "500000000000000001", "500000000000000002"
SOON_S: Final = 30.0


def a_server() -> FakeDiscord:
    """One with two chats of two, a channel, and a thread in it."""
    server = FakeDiscord()
    server.channels = {
        ALONE: {"id": ALONE, "type": 1},
        OTHER: {"id": OTHER, "type": 1},
        CHANNEL: {"id": CHANNEL, "type": 0, "guild_id": GUILD},
        THREAD: {"id": THREAD, "type": 11, "guild_id": GUILD, "parent_id": CHANNEL},
    }
    return server


class Ledger:
    """An inlet. What is in `faults` is raised by the next calls for a chat; those in `closed` wait until it is not."""

    def __init__(self) -> None:
        self.received: list[PlatformMessage] = []
        self.gone: list[InboundMessage] = []
        self.faults: dict[str, list[Exception]] = {}
        self.closed: dict[str, asyncio.Event] = {}
        self.tries = 0
        self._ids: set[str] = set()

    async def take(self, event: PlatformMessage) -> InletVerdict:
        chat = event.message.thread or event.message.chat_id
        self.tries += 1
        if chat in self.closed:
            await self.closed[chat].wait()
        if self.faults.get(chat):
            raise self.faults[chat].pop(0)
        if event.own or event.from_bot or not event.addressed:
            return "ignored"
        if event.message.id in self._ids:
            return "duplicate"
        self._ids.add(event.message.id)
        self.received.append(event)
        return "taken"

    async def on_delete(self, deleted: InboundMessage) -> None:
        self.gone.append(deleted)

    def texts(self, chat: str | None = None) -> list[str]:
        """What was said, in a chat or anywhere."""
        sent = [one.message for one in self.received]
        return [one.content for one in sent if chat in (None, one.thread or one.chat_id)]

    async def hears(self, *texts: str, chat: str | None = None) -> None:
        """Wait until exactly this was said."""

        def has() -> bool:
            assert self.texts(chat) == list(texts)
            return True

        await eventually(has, within_s=SOON_S, what=f"{list(texts)!r}")


class Memory:
    """A cursor."""

    def __init__(self) -> None:
        self.value = b""
        self.saves = 0

    def read(self) -> bytes:
        return self.value

    async def save(self, value: bytes) -> None:
        self.value, self.saves = value, self.saves + 1


class Bot:
    """Listens, until it ends or dies."""

    def __init__(self, server: FakeDiscord, inlet: Ledger, cursor: Memory, **table: Any) -> None:
        settings = read_discord("discord", {"token": TOKEN, **table})
        token = settings.token.reveal()
        base = f"{server.address}/api/v10"
        self.api = DiscordApi("discord", token, base, files_from=[server.address], timeout_s=5.0)
        self._listener = DiscordListener(
            "discord", settings, self.api, DiscordIdentity(str(BOT["id"]), "shoal"), cursor
        )
        self._inlet = inlet
        self._until = asyncio.Event()
        self._running: asyncio.Task[None] | None = None

    async def start(self) -> None:
        self._running = asyncio.create_task(self._listener.run(self._inlet, self._until))

    async def end(self) -> None:
        """As at the end of a gateway. Raises why it could not listen."""
        self._until.set()
        await self.over()

    async def over(self) -> None:
        """It ends by itself."""
        assert self._running is not None
        try:
            await self._running
        finally:
            await self.api.close()

    async def die(self) -> None:
        """As when its lock is lost, or its process is gone."""
        assert self._running is not None
        self._running.cancel()
        await asyncio.wait({self._running})
        await self.api.close()


@contextlib.asynccontextmanager
async def listening(server: FakeDiscord, inlet: Ledger, cursor: Memory, **table: Any) -> AsyncIterator[Bot]:
    """A bot that has a session."""
    bot = Bot(server, inlet, cursor, **table)
    await bot.start()
    shards = int(table.get("shards", 1))
    await eventually(lambda: server.gateway.open == shards and cursor.value, within_s=SOON_S, what="a session")
    try:
        yield bot
    finally:
        if bot._running is not None and not bot._running.done():
            await bot.end()


async def say(server: FakeDiscord, channel: str, text: str, *, to_us: bool = True, **more: Any) -> dict[str, Any]:
    """Anna writes something."""
    if to_us and "guild_id" in server.channels[channel]:
        more |= {"mentions": [dict(BOT)]}
    message = server.message(channel, dict(ANNA), text, **more)
    await server.gateway.tell("MESSAGE_CREATE", server.as_event(message))
    return message


def press(channel: str, id: str) -> dict[str, Any]:
    """Anna presses a button."""
    data = {"component_type": 2, "custom_id": "0:Tea"}
    return {"id": id, "type": 3, "token": "t=", "channel_id": channel, "user": ANNA, "data": data, "message": {}}
