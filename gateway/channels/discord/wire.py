"""Events of Discord's gateway as they come (docs.discord.com/developers/events/gateway-events), and
which of them say something to us. Pure."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta

_SPOKEN: Final = (0, 19)
"""Types of messages that people write: plain ones and replies. The others tell who came, what was
pinned and so on."""

_COMPONENT: Final = 3
"""The type of an interaction that is a press."""

Snowflake = Annotated[str, Meta(pattern=r"^[0-9]{1,20}\Z")]


class Unreadable(ValueError):
    """An event of a kind that we read, in a form that nobody knows. Holds nothing of it."""


class User(msgspec.Struct, frozen=True):
    """Somebody, also a bot. `global_name` is what they call themselves; `username` is nobody
    else's."""

    id: Snowflake
    username: str = ""
    global_name: str | None = None
    bot: bool = False


class Attachment(msgspec.Struct, frozen=True):
    """A file. Its address is good for a day."""

    url: str
    filename: str = ""
    content_type: str | None = None
    size: int | None = None


class Sticker(msgspec.Struct, frozen=True):
    """Only its name."""

    name: str = ""


class Snapshot(msgspec.Struct, frozen=True):
    """The text and files of a message that was forwarded; who wrote it is not told."""

    content: str = ""
    attachments: tuple[Attachment, ...] = ()


class Forwarded(msgspec.Struct, frozen=True):
    """One that was forwarded."""

    message: Snapshot


class Answered(msgspec.Struct, frozen=True):
    """The message that this one replies to."""

    author: User | None = None


class Message(msgspec.Struct, frozen=True):
    """What we read of one that was written or changed. Without `guild_id` it is in a chat of
    two."""

    id: Snowflake
    channel_id: Snowflake
    guild_id: Snowflake | None = None
    type: int = 0
    author: User | None = None
    webhook_id: str | None = None
    content: str = ""
    edited_timestamp: datetime | None = None
    mentions: tuple[User, ...] = ()
    referenced_message: Answered | None = None
    message_snapshots: tuple[Forwarded, ...] = ()
    attachments: tuple[Attachment, ...] = ()
    sticker_items: tuple[Sticker, ...] = ()
    edit: bool = False
    """Whether this was told as a change; Discord has no such field."""


class Deleted(msgspec.Struct, frozen=True):
    """One that was deleted."""

    id: Snowflake
    channel_id: Snowflake
    guild_id: Snowflake | None = None


class Gone(msgspec.Struct, frozen=True):
    """Messages that were deleted, one or many."""

    channel_id: Snowflake
    ids: tuple[Snowflake, ...]
    guild_id: Snowflake | None = None


class Component(msgspec.Struct, frozen=True):
    """A button, or a row of them."""

    components: tuple[Component, ...] = ()
    label: str | None = None
    custom_id: str | None = None


class Pressed(msgspec.Struct, frozen=True):
    """The message whose button was pressed."""

    components: tuple[Component, ...] = ()


class Choice(msgspec.Struct, frozen=True):
    """Which button it was."""

    custom_id: str = ""


class Member(msgspec.Struct, frozen=True):
    """Somebody on a server."""

    user: User | None = None


class Press(msgspec.Struct, frozen=True):
    """Somebody pressed a button (an interaction). `token` is for the answer to it."""

    id: Snowflake
    token: str
    type: int
    channel_id: Snowflake | None = None
    guild_id: Snowflake | None = None
    member: Member | None = None
    user: User | None = None
    data: Choice | None = None
    message: Pressed | None = None


Event = Message | Gone | Press


def read_event(name: str, data: Any) -> Event | None:
    """An event of the gateway; None for those that say nothing to us. Raises Unreadable."""
    try:
        match name:
            case "MESSAGE_CREATE" | "MESSAGE_UPDATE":
                return _message(msgspec.convert(data, Message), edit=name == "MESSAGE_UPDATE")
            case "MESSAGE_DELETE":
                one = msgspec.convert(data, Deleted)
                return Gone(one.channel_id, (one.id,), one.guild_id)
            case "MESSAGE_DELETE_BULK":
                return msgspec.convert(data, Gone)
            case "INTERACTION_CREATE":
                return _press(msgspec.convert(data, Press))
            case _:
                return None
    except msgspec.ValidationError as exc:
        raise Unreadable(f"{name} has a form that is not known") from exc


def _message(message: Message, *, edit: bool) -> Message | None:
    if message.type not in _SPOKEN or message.author is None or (edit and message.edited_timestamp is None):
        return None
    return msgspec.structs.replace(message, edit=edit)


def _press(press: Press) -> Press | None:
    return press if press.type == _COMPONENT and press.channel_id and press.data and sender(press) else None


def sender(event: Event) -> User | None:
    """Whose doing it is."""
    match event:
        case Message():
            return event.author
        case Press():
            return event.member.user if event.member is not None else event.user
        case Gone():
            return None
