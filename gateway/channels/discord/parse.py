"""Convert events of Discord's gateway into messages. Pure."""

from __future__ import annotations

import re
from typing import Final

import msgspec

from gateway.channels.discord.contents import (
    answered_quote,
    has_words_of_others,
    message_files,
    message_text,
)
from gateway.channels.discord.wire import DiscordIdentity, Interaction, Message, sender
from gateway.platform.protocol import PlatformMessage
from gateway.text.quotes import is_strange, with_quote
from shared.messages.inbound import InboundMessage

BEGAN_MS: Final = 1_420_070_400_000  # epoch of Discord's ids, which contain the ms since then
PRESSED: Final = "press/"  # prefix of the id of a press, which is not a message's id
_COMMAND: Final = re.compile(r"/\w+@(\S+)")


class ConversationInfo(msgspec.Struct, frozen=True):
    """The place of an event: a chat, and possibly a thread of it."""

    chat_id: str
    thread: str | None = None


def written_ms(id: str) -> int:
    """Return the time at which the message with this id was written, in ms."""
    return BEGAN_MS + (int(id) >> 22)


def first_id(ms: int) -> str:
    """Return an id lower than that of every message written from this moment on."""
    return str(max(0, ms - BEGAN_MS) << 22)


def is_addressed(message: Message, me: DiscordIdentity) -> bool:
    """Return whether a message mentions us, replies to us, is a command with our name, or is a
    direct message. A bare command does not count: on servers people use those of other bots."""
    if message.guild_id is None or any(one.id == me.id for one in message.mentions):
        return True
    answered = message.referenced_message
    if answered is not None and answered.author is not None and answered.author.id == me.id:
        return True
    command = _COMMAND.match(message.content)
    return command is not None and command[1].lower() == me.username.lower()


def parse_event(
    channel: str, event: Message | Interaction, place: ConversationInfo, me: DiscordIdentity
) -> PlatformMessage | None:
    """Return the message; None if the event contains none."""
    if isinstance(event, Interaction):
        return _parse_press(channel, event, place)
    text = message_text(event, me)
    files = message_files(event)
    author = event.author
    if (not text and not files) or author is None:
        return None
    at_ms = written_ms(event.id)
    if event.edit and event.edited_timestamp is not None:
        at_ms = round(event.edited_timestamp.timestamp() * 1000)
    id = f"{event.id}/{at_ms}" if event.edit else event.id
    own = author.id == me.id
    quote = answered_quote(event, me)
    return PlatformMessage(
        message=_inbound(channel, place, author.id, id, with_quote(text, quote), at_ms),
        group=event.guild_id is not None,
        addressed=is_addressed(event, me),
        own=own,
        from_bot=not own and (author.bot or event.webhook_id is not None),
        forwarded=has_words_of_others(event) or is_strange(quote),
        name=author.global_name or author.username,
        replaces=event.id if event.edit else None,
        files=files,
    )


def _parse_press(channel: str, press: Interaction, place: ConversationInfo) -> PlatformMessage | None:
    who = sender(press)
    says = _pressed_text(press)
    if who is None or not says:
        return None
    return PlatformMessage(
        message=_inbound(channel, place, who.id, f"{PRESSED}{press.id}", says, written_ms(press.id)),
        group=press.guild_id is not None,
        from_bot=who.bot,
        name=who.global_name or who.username,
    )


def _pressed_text(press: Interaction) -> str:
    """Return the text of `<number>:<text>`; a text too long for that is the button's label."""
    custom_id = press.data.custom_id if press.data is not None else None
    number, colon, says = (custom_id or "").partition(":")
    if says or not colon or not number.isdecimal() or press.message is None:
        return says
    buttons = [button for row in press.message.components for button in row.components]
    return next((button.label or "" for button in buttons if button.custom_id == custom_id), "")


def deleted_message(channel: str, id: str, place: ConversationInfo) -> InboundMessage:
    """Return a deleted message, as far as it is known."""
    return _inbound(channel, place, "", id, "", 0)


def _inbound(channel: str, place: ConversationInfo, sender_id: str, id: str, text: str, at_ms: int) -> InboundMessage:
    return InboundMessage(
        channel=channel,
        chat_id=place.chat_id,
        sender_id=sender_id,
        id=id,
        content=text,
        timestamp=at_ms,
        thread=place.thread,
    )
