"""Hands events of Discord to the inlet: where they happened, who is meant, and what was said while
nobody heard."""

from __future__ import annotations

import asyncio
import time
from typing import Any, Final

from gateway.channels.discord.api import PAGE, Api
from gateway.channels.discord.known import Chat, Chats
from gateway.channels.discord.parse import Me, Room, first_id, heard, is_for_us, place_of
from gateway.channels.discord.settings import DiscordSettings
from gateway.channels.discord.wire import Event, Gone, Message, Press, Unreadable, read_event
from gateway.platform.protocol import ChannelBroken, ChatClosed, Inlet, NotDelivered, PostRefused
from shared.log import logger

PAGES: Final = 5
"""So many pages of a chat are read after a break, the oldest first."""

AT_ONCE: Final = 2
"""So many chats: people's new messages need calls, too."""

OVERLAP_MS: Final = 60_000
"""Ids of two chats are not in order to the ms. What is read twice is known by its id."""

ROOMS: Final = 10_000

log = logger("discord")


class Taker:
    """Takes events of one channel. `chats` learns in which channels somebody was heard."""

    def __init__(self, name: str, settings: DiscordSettings, api: Api, me: Me, inlet: Inlet, chats: Chats) -> None:
        self._name = name
        self._api = api
        self._me = me
        self._inlet = inlet
        self._chats = chats
        self._history_ms = int(settings.history_s * 1000)
        self._hears_all = "open" in (settings.groups, *(rule.groups for rule in settings.group_rules.values()))
        self._rooms: dict[str, Room] = {}
        self._reading = asyncio.Semaphore(AT_ONCE)

    def read(self, kind: str, data: Any) -> Event | None:
        """An event, if it says something to us."""
        try:
            return read_event(kind, data)
        except Unreadable:
            log.warning("event passed over", kind=kind, reason="its form is not known")
            return None

    async def take(self, event: Event) -> None:
        """Raises RedisAway, Refused, NotDelivered, ChannelBroken: then it is not taken."""
        if isinstance(event, Gone):
            chat = self._chats.get(event.channel_id)
            if chat is None and event.guild_id is not None:
                return  # nobody was heard there
            room = chat.room if chat is not None else Room(event.channel_id)
            for id in event.ids:
                await self._inlet.on_delete(place_of(self._name, event, id, room))
            return
        assert event.channel_id is not None
        room = await self._room(event, event.channel_id)
        said = heard(self._name, event, room, self._me)
        if said is not None and await self._inlet.take(said) in ("taken", "command", "duplicate"):
            self._chats.heard(event.channel_id, event.guild_id, room)

    async def catch_up(self, chat: Chat, since_ms: int) -> None:
        """Take what was written in a chat since then. Raises as `take`."""
        oldest_ms = max(since_ms - OVERLAP_MS, int(time.time() * 1000) - self._history_ms)
        after = first_id(oldest_ms)
        async with self._reading:
            for _ in range(PAGES):
                try:
                    page = await self._api.messages(str(chat.channel), after)
                except (ChatClosed, PostRefused) as exc:
                    log.info("history not read", reason=exc.reason)
                    return
                for told in page:
                    after = told["id"]
                    guild = {"guild_id": str(chat.guild)} if chat.guild else {}
                    event = self.read("MESSAGE_CREATE", {**told, **guild})  # a page does not say whose it is
                    if event is not None:
                        await self.take(event)
                if len(page) < PAGE:
                    return

    async def answer(self, press: Press) -> None:
        """Tell Discord that a press was heard, which it wants to know at once; the person sees
        nothing of it."""
        try:
            await self._api.pressed(press.id, press.token)
        except (NotDelivered, ChannelBroken) as exc:  # a press that is told again was answered before
            log.debug("press not answered", reason=str(exc))

    async def _room(self, event: Message | Press, channel_id: str) -> Room:
        """The chat of a channel, asked for once, and only for what may be heard."""
        if event.guild_id is None:
            return Room(channel_id)
        if (chat := self._chats.get(channel_id)) is not None:
            return chat.room
        if channel_id not in self._rooms:
            if isinstance(event, Message) and not self._may_count(event):
                return Room(channel_id)
            if len(self._rooms) >= ROOMS:
                self._rooms.clear()
            self._rooms[channel_id] = await self._api.room(channel_id)
        return self._rooms[channel_id]

    def _may_count(self, message: Message) -> bool:
        """Whether anybody may want to hear it, whichever chat it is of."""
        if message.author is None or message.author.bot or message.webhook_id is not None:
            return False
        return self._hears_all or is_for_us(message, self._me)
