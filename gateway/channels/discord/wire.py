"""Events of Discord's gateway (docs.discord.com/developers/events/gateway-events). Pure."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta
from msgspec.structs import replace

from gateway.platform.nulls import convert

_SPOKEN: Final = (0, 19)  # by people: plain ones and replies; others report joins, pins and so on
_COMPONENT: Final = 3  # interaction type of a button press

Snowflake = Annotated[str, Meta(pattern=r"^[0-9]{1,20}\Z")]


class DiscordIdentity(msgspec.Struct, frozen=True):
    """The bot's own id and name."""

    id: Snowflake
    username: str


class UnreadableEvent(ValueError):
    """An event of a kind that we read, in an unknown form. Contains none of its content."""


class User(msgspec.Struct, frozen=True):
    """A person or a bot. `global_name` is self-chosen; `username` is unique."""

    id: Snowflake
    username: str = ""
    global_name: str | None = None
    bot: bool = False


class Attachment(msgspec.Struct, frozen=True):
    """A file. Its URL expires after a day."""

    url: str
    filename: str = ""
    content_type: str | None = None
    size: int | None = None


class _Sticker(msgspec.Struct, frozen=True):
    name: str = ""


class MessageBody(msgspec.Struct, frozen=True, kw_only=True):
    """All that a person reads of a message. `embeds`, `poll` and `components` have many forms, and
    are read as plain values."""

    content: str = ""
    mentions: tuple[User, ...] = ()
    attachments: tuple[Attachment, ...] = ()
    sticker_items: tuple[_Sticker, ...] = ()
    embeds: Any = None
    poll: Any = None
    components: Any = None


class _Forwarded(msgspec.Struct, frozen=True):
    message: MessageBody


class Referenced(MessageBody, frozen=True, kw_only=True):
    """The message that another one answers, or that a thread began with."""

    author: User | None = None
    message_snapshots: tuple[_Forwarded, ...] = ()


class Message(Referenced, frozen=True, kw_only=True):
    """The parts of a message that we read. Without `guild_id` it is a direct message."""

    id: Snowflake
    channel_id: Snowflake
    guild_id: Snowflake | None = None
    type: int = 0
    webhook_id: str | None = None
    edited_timestamp: datetime | None = None
    referenced_message: Referenced | None = None
    edit: bool = False  # it arrived as an update; Discord has no such field


class _MessageDeleted(msgspec.Struct, frozen=True):
    id: Snowflake
    channel_id: Snowflake
    guild_id: Snowflake | None = None


class MessagesDeleted(msgspec.Struct, frozen=True):
    """One or many deleted messages."""

    channel_id: Snowflake
    ids: tuple[Snowflake, ...]
    guild_id: Snowflake | None = None


class _Component(msgspec.Struct, frozen=True):
    components: tuple[_Component, ...] = ()
    label: str | None = None
    custom_id: str | None = None


class _Member(msgspec.Struct, frozen=True):
    user: User | None = None


class Interaction(msgspec.Struct, frozen=True):
    """A button press. `token` is needed to respond."""

    id: Snowflake
    token: str
    type: int
    channel_id: Snowflake | None = None
    guild_id: Snowflake | None = None
    member: _Member | None = None
    user: User | None = None
    data: _Component | None = None
    message: _Component | None = None


Event = Message | MessagesDeleted | Interaction


def read_event(name: str, data: Any) -> Event | None:
    """Decode a gateway event; None if it does not concern us. Raises UnreadableEvent."""
    try:
        match name:
            case "MESSAGE_CREATE" | "MESSAGE_UPDATE":
                message = convert(data, Message)
                edit = name == "MESSAGE_UPDATE"
                spoken = message.type in _SPOKEN and message.author is not None
                dated = not edit or message.edited_timestamp is not None
                return replace(message, edit=edit) if spoken and dated else None
            case "MESSAGE_DELETE":
                one = convert(data, _MessageDeleted)
                return MessagesDeleted(one.channel_id, (one.id,), one.guild_id)
            case "MESSAGE_DELETE_BULK":
                return convert(data, MessagesDeleted)
            case "INTERACTION_CREATE":
                press = convert(data, Interaction)
                ours = press.type == _COMPONENT and press.channel_id and press.data and sender(press)
                return press if ours else None
            case _:
                return None
    except msgspec.ValidationError as exc:
        raise UnreadableEvent(f"{name} has a form that is not known") from exc


def sender(press: Interaction) -> User | None:
    """Return the user who pressed a button."""
    return press.member.user if press.member is not None else press.user
