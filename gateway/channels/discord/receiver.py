"""Pass events of Discord to the inlet: find the conversation, confirm presses, read history."""

from __future__ import annotations

import asyncio
import time
from typing import Any, Final

from gateway.channels.discord.api import PAGE, DiscordApi
from gateway.channels.discord.cursor import ChatCache, KnownChannel
from gateway.channels.discord.parse import (
    ConversationInfo,
    deleted_message,
    first_id,
    is_addressed,
    parse_event,
)
from gateway.channels.discord.settings import DiscordSettings
from gateway.channels.discord.wire import (
    DiscordIdentity,
    Event,
    Interaction,
    Message,
    MessagesDeleted,
    UnreadableEvent,
    read_event,
)
from gateway.platform.protocol import ChannelBroken, ChatClosed, Inlet, NotDelivered, PostRefused
from shared.log import logger

MAX_PAGES: Final = 5  # pages of a chat read after a gap, oldest first
PARALLEL_READS: Final = 2  # chats read at once; few, because people's new messages need calls too
OVERLAP_MS: Final = 60_000  # ids of two chats are not ordered to the ms; doubles are recognised
MAX_CONVERSATIONS: Final = 10_000
_ACCEPTED: Final = ("taken", "command", "duplicate")

log = logger("discord")


class EventReceiver:
    """The receiver of one channel's events. `chats` collects where a message was accepted."""

    def __init__(
        self, name: str, settings: DiscordSettings, api: DiscordApi, me: DiscordIdentity, inlet: Inlet, chats: ChatCache
    ) -> None:
        self._name = name
        self._api = api
        self._me = me
        self._inlet = inlet
        self._chats = chats
        self._history_ms = int(settings.history_s * 1000)
        rules = settings.group_rules.values()
        self._reads_all = "open" in (settings.groups, *(rule.groups for rule in rules))
        self._conversations: dict[str, ConversationInfo] = {}
        self._reading = asyncio.Semaphore(PARALLEL_READS)

    def decode(self, kind: str, data: Any) -> Event | None:
        """Decode an event; None if it is not for us."""
        try:
            return read_event(kind, data)
        except UnreadableEvent:
            log.warning("event passed over", kind=kind, reason="its form is not known")
            return None

    async def accept(self, event: Event) -> None:
        """Pass an event to the inlet, or raise RedisAway, Refused, NotDelivered, ChannelBroken."""
        if isinstance(event, MessagesDeleted):
            chat = self._chats.get(event.channel_id)
            if chat is None and event.guild_id is not None:
                return  # nobody was heard there
            conversation = chat.conversation if chat is not None else ConversationInfo(event.channel_id)
            for id in event.ids:
                await self._inlet.on_delete(deleted_message(self._name, id, conversation))
            return
        assert event.channel_id is not None
        conversation = await self._conversation(event, event.channel_id)
        message = parse_event(self._name, event, conversation, self._me)
        if message is not None and await self._inlet.take(message) in _ACCEPTED:
            self._chats.remember(event.channel_id, event.guild_id, conversation)

    async def catch_up(self, chat: KnownChannel, since_ms: int) -> None:
        """Accept the messages written in a chat since then. Raises like `accept`."""
        oldest_ms = max(since_ms - OVERLAP_MS, int(time.time() * 1000) - self._history_ms)
        after = first_id(oldest_ms)
        async with self._reading:
            for _ in range(MAX_PAGES):
                try:
                    page = await self._api.get_messages(str(chat.channel), after)
                except (ChatClosed, PostRefused) as exc:
                    log.info("history not read", reason=exc.reason)
                    return
                for found in page:
                    after = found["id"]
                    # A page does not say whose it is.
                    guild = {"guild_id": str(chat.guild)} if chat.guild else {}
                    event = self.decode("MESSAGE_CREATE", {**found, **guild})
                    if event is not None:
                        await self.accept(event)
                if len(page) < PAGE:
                    return

    async def confirm_press(self, press: Interaction) -> None:
        """Acknowledge a press at once, as Discord requires; the person sees nothing of it."""
        try:
            await self._api.confirm_press(press.id, press.token)
        except (NotDelivered, ChannelBroken) as exc:  # a press that is told again was answered before
            log.debug("press not answered", reason=str(exc))

    async def _conversation(self, event: Message | Interaction, channel_id: str) -> ConversationInfo:
        """Return the conversation of a channel; looked up once, for messages that may matter."""
        if event.guild_id is None:
            return ConversationInfo(channel_id)
        if (chat := self._chats.get(channel_id)) is not None:
            return chat.conversation
        if channel_id not in self._conversations:
            if isinstance(event, Message) and not self._may_be_addressed(event):
                return ConversationInfo(channel_id)
            if len(self._conversations) >= MAX_CONVERSATIONS:
                self._conversations.clear()
            self._conversations[channel_id] = await self._api.get_conversation(channel_id)
        return self._conversations[channel_id]

    def _may_be_addressed(self, message: Message) -> bool:
        """Return whether the message may be accepted in any kind of chat."""
        if message.author is None or message.author.bot or message.webhook_id is not None:
            return False
        return self._reads_all or is_addressed(message, self._me)
