"""Events of Discord's gateway as messages. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

import msgspec

from gateway.channels.discord.wire import Gone, Message, Press, sender
from gateway.platform.protocol import PlatformMessage, RemoteFile
from shared.messages.inbound import InboundMessage

BEGAN_MS: Final = 1_420_070_400_000
"""The first moment of Discord's ids: they hold the ms since then."""

PRESSED: Final = "press/"
"""Before the id of a press, which is no message's."""

_NAMED: Final = re.compile(r"<@!?([0-9]+)>")
_COMMAND: Final = re.compile(r"/\w+@(\S+)")


class Me(msgspec.Struct, frozen=True):
    """Who the bot is."""

    id: str
    username: str


class Room(msgspec.Struct, frozen=True):
    """Where an event happened: a chat, and a thread of it."""

    chat_id: str
    thread: str | None = None


def said_ms(id: str) -> int:
    """When a message of this id was written, in ms."""
    return BEGAN_MS + (int(id) >> 22)


def first_id(ms: int) -> str:
    """An id that is lower than those of all messages from this moment on."""
    return str(max(0, ms - BEGAN_MS) << 22)


def is_for_us(message: Message, me: Me) -> bool:
    """A mention of us, a reply to us, a command with our name, or anything in a chat of two.

    A bare command is not: on servers people write those of other bots."""
    if message.guild_id is None or any(one.id == me.id for one in message.mentions):
        return True
    answered = message.referenced_message
    if answered is not None and answered.author is not None and answered.author.id == me.id:
        return True
    command = _COMMAND.match(message.content)
    return command is not None and command[1].lower() == me.username.lower()


def heard(channel: str, event: Message | Press, room: Room, me: Me) -> PlatformMessage | None:
    """What was said; None for what says nothing."""
    return _said(channel, event, room, me) if isinstance(event, Message) else _chosen(channel, event, room)


def _said(channel: str, message: Message, room: Room, me: Me) -> PlatformMessage | None:
    text, files = _words(message, me), tuple(_files(message))
    if (not text and not files) or message.author is None:
        return None
    at_ms = said_ms(message.id)
    if message.edit and message.edited_timestamp is not None:
        at_ms = round(message.edited_timestamp.timestamp() * 1000)
    own = message.author.id == me.id
    return PlatformMessage(
        message=InboundMessage(
            channel=channel,
            chat_id=room.chat_id,
            sender_id=message.author.id,
            id=f"{message.id}/{at_ms}" if message.edit else message.id,
            content=text,
            timestamp=at_ms,
            thread=room.thread,
        ),
        group=message.guild_id is not None,
        addressed=is_for_us(message, me),
        own=own,
        from_bot=not own and (message.author.bot or message.webhook_id is not None),
        name=message.author.global_name or message.author.username,
        replaces=message.id if message.edit else None,
        files=files,
    )


def _chosen(channel: str, press: Press, room: Room) -> PlatformMessage | None:
    who, says = sender(press), _says(press)
    if who is None or not says:
        return None
    return PlatformMessage(
        message=InboundMessage(
            channel=channel,
            chat_id=room.chat_id,
            sender_id=who.id,
            id=f"{PRESSED}{press.id}",
            content=says,
            timestamp=said_ms(press.id),
            thread=room.thread,
        ),
        group=press.guild_id is not None,
        from_bot=who.bot,
        name=who.global_name or who.username,
    )


def _says(press: Press) -> str:
    """`<number>:<what it says>`; what is too long for that stands on the button itself."""
    custom_id = press.data.custom_id if press.data is not None else ""
    number, colon, says = custom_id.partition(":")
    if says or not colon or not number.isdecimal() or press.message is None:
        return says
    buttons = [button for row in press.message.components for button in row.components]
    return next((button.label or "" for button in buttons if button.custom_id == custom_id), "")


def _words(message: Message, me: Me) -> str:
    snapshots = (one.message.content for one in message.message_snapshots)
    stickers = (f"[sticker: {one.name}]" for one in message.sticker_items)
    text = _without_our_name(message.content, me)
    names = {one.id: one.username for one in message.mentions if one.username} | {me.id: me.username}
    text = _NAMED.sub(lambda found: f"@{names[found[1]]}" if found[1] in names else found[0], text)
    return "\n\n".join(part.strip() for part in (text, *snapshots, *stickers) if part.strip())


def _without_our_name(text: str, me: Me) -> str:
    """Without the mention that it begins or ends with: it only says who is meant."""
    name = rf"<@!?{me.id}>"
    shorter = re.sub(rf"^\s*(?:{name}[\s,:]*)+|\s*{name}\s*$", "", text).strip()
    return shorter or text


def _files(message: Message) -> Iterator[RemoteFile]:
    forwarded = [file for one in message.message_snapshots for file in one.message.attachments]
    for file in (*message.attachments, *forwarded):
        media_type = (file.content_type or "").partition(";")[0].strip()
        yield RemoteFile(handle=file.url, name=file.filename, media_type=media_type, size_bytes=file.size)


def place_of(channel: str, gone: Gone, id: str, room: Room) -> InboundMessage:
    """A message that was deleted, as far as it is known."""
    return InboundMessage(
        channel=channel, chat_id=room.chat_id, sender_id="", id=id, content="", timestamp=0, thread=room.thread
    )
