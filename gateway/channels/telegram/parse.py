"""Convert updates of the Bot API into messages (core.telegram.org/bots/api#update). Pure."""

from __future__ import annotations

import re
from typing import Any, Final

import msgspec
from msgspec import field

from gateway.platform.protocol import PlatformMessage, RemoteFile
from shared.messages.inbound import InboundMessage

ALLOWED_UPDATES: Final = ("message", "edited_message", "callback_query")
BY_NUMBER: Final = "#"  # before a button's number, if its text does not fit into the callback data
_NOBODY: Final = {1087968824, 136817688}  # anonymous administrators, a channel posting in its group
_COMMAND: Final = re.compile(r"/\w+(?:@(\w+))?(?:\s|$)")


class TelegramIdentity(msgspec.Struct, frozen=True):
    """The bot's own id and username."""

    id: int
    username: str


class User(msgspec.Struct, frozen=True):
    """A person or a bot. The names are self-chosen."""

    id: int
    is_bot: bool = False
    first_name: str = ""
    last_name: str = ""
    username: str = ""


class _Chat(msgspec.Struct, frozen=True):
    id: int
    type: str  # private, group, supergroup or channel


class _Entity(msgspec.Struct, frozen=True):
    type: str
    offset: int  # in UTF-16 code units, like the length
    length: int
    user: User | None = None


class _File(msgspec.Struct, frozen=True):
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
    forward_origin: dict[str, Any] | None = None
    via_bot: User | None = None  # another bot wrote the text; the person only chose it
    text: str = ""
    caption: str = ""
    entities: tuple[_Entity, ...] = ()
    caption_entities: tuple[_Entity, ...] = ()
    photo: tuple[_File, ...] = ()
    document: _File | None = None
    voice: _File | None = None
    audio: _File | None = None
    video: _File | None = None
    video_note: _File | None = None
    animation: _File | None = None
    sticker: _Sticker | None = None
    location: _Location | None = None
    contact: _Contact | None = None
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


decode_update: Final = msgspec.json.Decoder(Update).decode  # Raises msgspec.DecodeError.


def parse_update(channel: str, update: Update, me: TelegramIdentity) -> PlatformMessage | None:
    """Return the message of an update; None if it holds none for us, e.g. joins, pins or polls."""
    if update.callback_query is not None:
        return _parse_press(channel, update.callback_query)
    message = update.edited_message or update.message
    if message is None or message.chat.type == "channel":
        return None
    text, files = _message_text(message), _message_files(message)
    if not text and not files:
        return None
    id = f"{message.chat.id}/{message.message_id}"  # unique across chats
    edited, group = update.edited_message is not None, message.chat.type != "private"
    return _platform_message(
        channel,
        message,
        message.from_,
        id=f"{id}/{message.edit_date}" if edited else id,
        text=_strip_own_mention(text, me) if group else text,
        addressed=not group or _is_addressed(message, me),
        own=message.from_ is not None and message.from_.id == me.id,
        replaces=id if edited else None,
        files=files,
    )


def _parse_press(channel: str, press: CallbackQuery) -> PlatformMessage | None:
    message, says = press.message, press.data
    if message is None:
        return None
    if says.startswith(BY_NUMBER):
        rows = message.reply_markup.inline_keyboard if message.reply_markup else ()
        labels = [str(button.get("text", "")) for row in rows for button in row]
        number = says[1:]
        says = labels[int(number)] if number.isdecimal() and int(number) < len(labels) else ""
    if not says:
        return None
    return _platform_message(channel, message, press.from_, id=f"press/{press.id}", text=says)


def _platform_message(
    channel: str,
    message: Message,
    sender: User | None,
    *,
    id: str,
    text: str,
    addressed: bool = True,
    own: bool = False,
    replaces: str | None = None,
    files: tuple[RemoteFile, ...] = (),
) -> PlatformMessage:
    person = sender if sender is not None and sender.id not in _NOBODY else None
    # Replies in groups without topics carry a thread id too; they are no separate conversation.
    topic = message.message_thread_id if message.is_topic_message else None
    return PlatformMessage(
        message=InboundMessage(
            channel=channel,
            chat_id=str(message.chat.id),
            sender_id=str(person.id) if person else "",
            id=id,
            content=text,
            timestamp=(message.edit_date or message.date) * 1000,
            thread=str(topic) if topic else None,
        ),
        group=message.chat.type != "private",
        addressed=addressed,
        own=own,
        from_bot=not own and person is not None and person.is_bot,
        forwarded=any(one is not None for one in (message.forward_origin, message.via_bot, message.contact)),
        name=" ".join(filter(None, (sender.first_name, sender.last_name))) if sender else "",
        replaces=replaces,
        files=files,
    )


def _message_text(message: Message) -> str:
    if message.sticker is not None:
        return message.sticker.emoji or "[sticker]"
    if (at := message.location) is not None:
        return f"[location: {at.latitude}, {at.longitude}]"
    if (card := message.contact) is not None:
        return f"[contact: {f'{card.first_name} {card.last_name}'.strip()}, {card.phone_number}]"
    return (message.text or message.caption).strip()


def _message_files(message: Message) -> tuple[RemoteFile, ...]:
    kinds = (
        # The last photo is the biggest.
        (message.photo[-1] if message.photo else None, "photo.jpg", "image/jpeg"),
        (message.document if message.animation is None else None, "file", ""),
        (message.animation, "animation.mp4", "video/mp4"),
        (message.voice, "voice.ogg", "audio/ogg"),
        (message.audio, "audio.mp3", "audio/mpeg"),
        (message.video, "video.mp4", "video/mp4"),
        (message.video_note, "video.mp4", "video/mp4"),
    )
    return tuple(
        RemoteFile(
            handle=one.file_id,
            name=one.file_name or name,
            media_type=one.mime_type or media_type,
            size_bytes=one.file_size,
        )
        for one, name, media_type in kinds
        if one is not None
    )


def _is_addressed(message: Message, me: TelegramIdentity) -> bool:
    """Return whether a message mentions us, replies to us, or is a command for no other bot."""
    reply = message.reply_to_message
    if reply is not None and reply.from_ is not None and reply.from_.id == me.id:
        return True
    text = message.text or message.caption
    command = _COMMAND.match(text)
    if command is not None:
        return command[1] is None or command[1].lower() == me.username.lower()
    # Telegram counts offsets in UTF-16 code units, not in characters.
    units = text.encode("utf-16-le")
    for entity in message.entities or message.caption_entities:
        if entity.type == "text_mention" and entity.user is not None and entity.user.id == me.id:
            return True
        if entity.type == "mention":
            named = units[2 * entity.offset : 2 * (entity.offset + entity.length)]
            if named.decode("utf-16-le", "replace").lower() == f"@{me.username.lower()}":
                return True
    return False


def _strip_own_mention(text: str, me: TelegramIdentity) -> str:
    """Remove a leading or trailing mention of the bot: it only addresses us."""
    name = re.escape(me.username)
    shorter = re.sub(rf"^@{name}\b[\s,:]*|\s*@{name}$", "", text, flags=re.IGNORECASE).strip()
    return shorter or text
