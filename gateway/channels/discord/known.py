"""How far a bot has read, for whoever listens next: another gateway, or the next start."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from gateway.channels.discord.parse import Room

CHATS: Final = 500
"""So many chats are remembered, the newest ones."""


class Session(msgspec.Struct, frozen=True, array_like=True):
    """One of the gateway's, which replays what came after event `seq`."""

    id: str
    url: str
    seq: int


class Reading(msgspec.Struct, frozen=True, array_like=True):
    """How far a shard has read: everything that was written before `since_ms` (Discord's time) is
    taken; 0 = it has never read. Without a session nothing is replayed."""

    since_ms: int = 0
    session: Session | None = None


class Chat(msgspec.Struct, frozen=True, array_like=True):
    """A channel in which somebody was heard. `guild` is the server, 0 = a chat of two; `parent`
    what it is a thread of, 0 = it is none."""

    channel: int
    guild: int
    parent: int

    @property
    def room(self) -> Room:
        return Room(str(self.parent), str(self.channel)) if self.parent else Room(str(self.channel))

    def shard(self, shards: int) -> int:
        """Which shard hears it."""
        return (self.guild >> 22) % shards


class Known(msgspec.Struct, frozen=True, array_like=True):
    """All of it; `readings` has one for each shard."""

    readings: tuple[Reading, ...] = ()
    chats: tuple[Chat, ...] = ()

    def for_shards(self, count: int) -> tuple[Reading, ...]:
        """The readings for so many shards. A session is of no use when there were more of them, or
        fewer."""
        if len(self.readings) == count:
            return self.readings
        return (Reading(min((one.since_ms for one in self.readings), default=0)),) * count


class Chats:
    """The chats that are known, newest last."""

    def __init__(self, chats: Iterable[Chat]) -> None:
        self._chats = {str(chat.channel): chat for chat in chats}

    def __iter__(self) -> Iterator[Chat]:
        return iter(self._chats.values())

    def get(self, channel_id: str) -> Chat | None:
        """The chat of a channel."""
        return self._chats.get(channel_id)

    def heard(self, channel_id: str, guild_id: str | None, room: Room) -> None:
        """Somebody was heard there."""
        chat = self._chats.pop(channel_id, None)
        parent = int(room.chat_id) if room.thread else 0
        self._chats[channel_id] = chat or Chat(int(channel_id), int(guild_id or 0), parent)
        if len(self._chats) > CHATS:
            del self._chats[next(iter(self._chats))]


_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final = msgspec.msgpack.Decoder(Known)


def write_known(known: Known) -> bytes:
    """As bytes."""
    return _encoder.encode(known)


def read_known(value: bytes) -> Known:
    """What was written; nothing at all for what cannot be read, such as that of another release."""
    try:
        return _decoder.decode(value) if value else Known()
    except msgspec.DecodeError:
        return Known()
