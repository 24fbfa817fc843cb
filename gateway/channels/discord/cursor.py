"""The cursor of a bot, for the next listener: another gateway, or the next start."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

import msgspec

from gateway.channels.discord.parse import ConversationInfo

MAX_CHATS: Final = 500  # only the most recent chats are remembered


class GatewaySession(msgspec.Struct, frozen=True, array_like=True):
    """A gateway session; resuming it replays everything after event `seq`."""

    id: str
    url: str
    seq: int


def new_session(seq: int, ready: Any) -> GatewaySession:
    """Return the session that the event READY begins."""
    return GatewaySession(str(ready["session_id"]), str(ready["resume_gateway_url"]), seq)


class ShardProgress(msgspec.Struct, frozen=True, array_like=True):
    """The progress of a shard: everything written before `since_ms` (Discord's time) is accepted; 0
    = nothing was ever read. Without a session nothing can be replayed."""

    since_ms: int = 0
    session: GatewaySession | None = None


class KnownChannel(msgspec.Struct, frozen=True, array_like=True):
    """A channel in which a message was accepted. `guild` is the server, 0 = a direct message;
    `parent` is the channel of a thread, 0 = not a thread."""

    channel: int
    guild: int
    parent: int

    @property
    def conversation(self) -> ConversationInfo:
        channel = str(self.channel)
        return ConversationInfo(str(self.parent), channel) if self.parent else ConversationInfo(channel)

    def shard(self, shards: int) -> int:
        """Return the shard that receives its events."""
        return (self.guild >> 22) % shards


class DiscordCursor(msgspec.Struct, frozen=True, array_like=True):
    """The whole cursor; `readings` has one entry per shard."""

    readings: tuple[ShardProgress, ...] = ()
    chats: tuple[KnownChannel, ...] = ()

    def for_shards(self, count: int) -> tuple[ShardProgress, ...]:
        """Return the progress for `count` shards. With another count, sessions are useless."""
        if len(self.readings) == count:
            return self.readings
        return (ShardProgress(min((one.since_ms for one in self.readings), default=0)),) * count


class ChatCache:
    """The known chats, newest last."""

    def __init__(self, chats: Iterable[KnownChannel]) -> None:
        self._chats = {str(chat.channel): chat for chat in chats}
        self.get = self._chats.get

    def __iter__(self) -> Iterator[KnownChannel]:
        return iter(self._chats.values())

    def remember(self, channel_id: str, guild_id: str | None, conversation: ConversationInfo) -> None:
        """Move a chat to the newest place."""
        chat = self._chats.pop(channel_id, None)
        parent = int(conversation.chat_id) if conversation.thread else 0
        self._chats[channel_id] = chat or KnownChannel(int(channel_id), int(guild_id or 0), parent)
        if len(self._chats) > MAX_CHATS:
            del self._chats[next(iter(self._chats))]


encode_cursor: Final = msgspec.msgpack.Encoder().encode

_decoder: Final = msgspec.msgpack.Decoder(DiscordCursor)


def decode_cursor(value: bytes) -> DiscordCursor:
    """Decode the cursor; an empty one if it cannot be read, e.g. from another release."""
    try:
        return _decoder.decode(value) if value else DiscordCursor()
    except msgspec.DecodeError:
        return DiscordCursor()
