"""Updates of the Bot API, as far as we read them (core.telegram.org/bots/api#update). Pure."""

from __future__ import annotations

from typing import Any, Final

import msgspec
from msgspec import field

from gateway.platform.nulls import NullTolerantDecoder


class User(msgspec.Struct, frozen=True):
    """A person or a bot. The names are self-chosen."""

    id: int
    is_bot: bool = False
    first_name: str = ""
    last_name: str = ""
    username: str = ""

    @property
    def full_name(self) -> str:
        return " ".join(filter(None, (self.first_name, self.last_name)))


class _Chat(msgspec.Struct, frozen=True):
    id: int
    type: str  # private, group, supergroup or channel
    title: str = ""


class Origin(msgspec.Struct, frozen=True):
    """Who wrote a forwarded message, or one of another chat: a person, a hidden one, or a chat."""

    sender_user: User | None = None
    sender_user_name: str = ""
    sender_chat: _Chat | None = None
    chat: _Chat | None = None


class _ExternalReply(msgspec.Struct, frozen=True):  # the answered message is in another chat
    origin: Origin | None = None


class _Entity(msgspec.Struct, frozen=True):
    type: str
    offset: int  # in UTF-16 code units, like the length
    length: int
    user: User | None = None


class MediaFile(msgspec.Struct, frozen=True):
    """A file, not fetched yet."""

    file_id: str
    file_name: str = ""  # photos, voice messages and round videos have none
    mime_type: str = ""
    file_size: int | None = None


class _InlineKeyboard(msgspec.Struct, frozen=True):
    inline_keyboard: tuple[tuple[dict[str, Any], ...], ...] = ()


class _Sticker(msgspec.Struct, frozen=True):
    emoji: str = ""


class _Location(msgspec.Struct, frozen=True):
    latitude: float
    longitude: float


class _Venue(msgspec.Struct, frozen=True):
    title: str = ""
    address: str = ""


class _Option(msgspec.Struct, frozen=True):
    text: str = ""


class Poll(msgspec.Struct, frozen=True):
    """A question with its options."""

    question: str = ""
    options: tuple[_Option, ...] = ()
    explanation: str = ""
    description: str = ""


class _Task(msgspec.Struct, frozen=True):
    text: str = ""
    completion_date: int = 0  # 0: not done


class _Checklist(msgspec.Struct, frozen=True):
    title: str = ""
    tasks: tuple[_Task, ...] = ()


class _Titled(msgspec.Struct, frozen=True):  # a game, or an invoice
    title: str = ""
    description: str = ""


class _Dice(msgspec.Struct, frozen=True):
    emoji: str = ""
    value: int = 0


class _PaidMedia(msgspec.Struct, frozen=True):  # one of a list; without either field it is not paid for
    photo: tuple[MediaFile, ...] = ()
    video: MediaFile | None = None


class _PaidMediaList(msgspec.Struct, frozen=True):
    paid_media: tuple[_PaidMedia, ...] = ()


class _TextQuote(msgspec.Struct, frozen=True):
    text: str = ""  # the part of the answered message that the person chose


class _Contact(msgspec.Struct, frozen=True):
    phone_number: str
    first_name: str = ""
    last_name: str = ""


class Message(msgspec.Struct, frozen=True):
    """The parts of a message that we read."""

    message_id: int
    chat: _Chat
    date: int = 0
    edit_date: int = 0
    from_: User | None = field(name="from", default=None)
    message_thread_id: int | None = None
    is_topic_message: bool = False
    reply_to_message: Message | None = None
    external_reply: _ExternalReply | None = None
    quote: _TextQuote | None = None
    forward_origin: Origin | None = None
    is_automatic_forward: bool = False  # of a channel into its group
    sender_chat: _Chat | None = None
    via_bot: User | None = None  # another bot wrote the text; the person only chose it
    media_group_id: str = ""  # of an album, each file of which is a message
    text: str = ""
    caption: str = ""
    entities: tuple[_Entity, ...] = ()
    caption_entities: tuple[_Entity, ...] = ()
    photo: tuple[MediaFile, ...] = ()
    document: MediaFile | None = None
    voice: MediaFile | None = None
    audio: MediaFile | None = None
    video: MediaFile | None = None
    video_note: MediaFile | None = None
    animation: MediaFile | None = None
    sticker: _Sticker | None = None
    location: _Location | None = None
    contact: _Contact | None = None
    venue: _Venue | None = None
    poll: Poll | None = None
    checklist: _Checklist | None = None
    game: _Titled | None = None
    invoice: _Titled | None = None
    dice: _Dice | None = None
    story: dict[str, Any] | None = None
    paid_media: _PaidMediaList | None = None
    reply_markup: _InlineKeyboard | None = None


class CallbackQuery(msgspec.Struct, frozen=True):
    """A press of an inline button."""

    id: str
    from_: User = field(name="from")
    message: Message | None = None
    data: str = ""


class Update(msgspec.Struct, frozen=True):
    """One event: one of these fields is set, or none if it is of a kind that we did not ask for."""

    update_id: int
    message: Message | None = None
    edited_message: Message | None = None
    callback_query: CallbackQuery | None = None


decode_update: Final = NullTolerantDecoder(Update).decode
"""Decode an update. Raises msgspec.DecodeError."""
