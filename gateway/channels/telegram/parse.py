"""Updates of the Bot API as messages (core.telegram.org/bots/api#update). Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

import msgspec
from msgspec import field

from gateway.platform.protocol import PlatformMessage, RemoteFile
from shared.messages.inbound import InboundMessage

ALLOWED_UPDATES: Final = ("message", "edited_message", "callback_query")
BY_NUMBER: Final = "#"
"""Before the number of a button whose text is too long for a press to carry it."""

_NOBODY: Final = {1087968824, 136817688}
"""An anonymous administrator, and a channel that writes in its group: many people have these
ids."""

_COMMAND: Final = re.compile(r"/\w+(?:@(\w+))?(?:\s|$)")


class Me(msgspec.Struct, frozen=True):
    """Who the bot is."""

    id: int
    username: str


class User(msgspec.Struct, frozen=True):
    """Somebody, also a bot. Names are what they call themselves."""

    id: int
    is_bot: bool = False
    first_name: str = ""
    last_name: str = ""
    username: str = ""


class Chat(msgspec.Struct, frozen=True):
    """`type` is private, group, supergroup or channel."""

    id: int
    type: str


class Entity(msgspec.Struct, frozen=True):
    """A span of a text, in UTF-16 code units."""

    type: str
    offset: int
    length: int
    user: User | None = None


class FileOf(msgspec.Struct, frozen=True):
    """A file of any kind. Photos, voices and round videos have no name."""

    file_id: str
    file_name: str = ""
    mime_type: str = ""
    file_size: int | None = None


class Keyboard(msgspec.Struct, frozen=True):
    """The buttons under a message, in rows."""

    inline_keyboard: tuple[tuple[dict[str, Any], ...], ...] = ()


class Sticker(msgspec.Struct, frozen=True):
    """Only what it stands for."""

    emoji: str = ""


class Location(msgspec.Struct, frozen=True):
    """In degrees."""

    latitude: float
    longitude: float


class Contact(msgspec.Struct, frozen=True):
    """Of the address book of whoever sent it."""

    phone_number: str
    first_name: str = ""
    last_name: str = ""


class Message(msgspec.Struct, frozen=True):
    """What we read of it."""

    message_id: int
    chat: Chat
    date: int = 0
    edit_date: int = 0
    from_: User | None = field(name="from", default=None)
    sender_chat: Chat | None = None
    via_bot: User | None = None
    message_thread_id: int | None = None
    is_topic_message: bool = False
    reply_to_message: Message | None = None
    text: str = ""
    caption: str = ""
    entities: tuple[Entity, ...] = ()
    caption_entities: tuple[Entity, ...] = ()
    photo: tuple[FileOf, ...] = ()
    document: FileOf | None = None
    voice: FileOf | None = None
    audio: FileOf | None = None
    video: FileOf | None = None
    video_note: FileOf | None = None
    animation: FileOf | None = None
    sticker: Sticker | None = None
    location: Location | None = None
    contact: Contact | None = None
    reply_markup: Keyboard | None = None


class Press(msgspec.Struct, frozen=True):
    """Somebody pressed a button (a callback query)."""

    id: str
    from_: User = field(name="from")
    message: Message | None = None
    data: str = ""


class Update(msgspec.Struct, frozen=True):
    """What Telegram tells: one of these, or something that we did not ask for."""

    update_id: int
    message: Message | None = None
    edited_message: Message | None = None
    callback_query: Press | None = None


_decoder: Final = msgspec.json.Decoder(Update)


def read_update(body: bytes) -> Update:
    """Raises msgspec.DecodeError for what is no update."""
    return _decoder.decode(body)


def heard(channel: str, update: Update, me: Me) -> PlatformMessage | None:
    """What was said; None for what says nothing to us, such as who came and went, a pin, a poll."""
    if update.callback_query is not None:
        return _pressed(channel, update.callback_query)
    message = update.edited_message or update.message
    if message is None or message.chat.type == "channel":
        return None
    text, files = _words(message), tuple(_files(message))
    if not text and not files:
        return None
    id = message_id(message.chat.id, message.message_id)
    edited = update.edited_message is not None
    return _heard(
        channel,
        message,
        message.from_,
        id=f"{id}/{message.edit_date}" if edited else id,
        text=_without_our_name(text, me) if _is_group(message) else text,
        addressed=not _is_group(message) or _is_for_us(message, me),
        replaces=id if edited else None,
        files=files,
        me=me,
    )


def message_id(chat_id: int | str, message_id: int | str) -> str:
    """The id of a message among those of all chats."""
    return f"{chat_id}/{message_id}"


def _pressed(channel: str, press: Press) -> PlatformMessage | None:
    if press.message is None or not press.data:
        return None
    says = press.data
    if says.startswith(BY_NUMBER):
        rows = press.message.reply_markup.inline_keyboard if press.message.reply_markup else ()
        labels = [str(button.get("text", "")) for row in rows for button in row]
        number = says[1:]
        says = labels[int(number)] if number.isdecimal() and int(number) < len(labels) else ""
    if not says:
        return None
    return _heard(channel, press.message, press.from_, id=f"press/{press.id}", text=says)


def _heard(
    channel: str,
    message: Message,
    sender: User | None,
    *,
    id: str,
    text: str,
    addressed: bool = True,
    replaces: str | None = None,
    files: tuple[RemoteFile, ...] = (),
    me: Me | None = None,
) -> PlatformMessage:
    nobody = sender is None or sender.id in _NOBODY
    own = me is not None and sender is not None and sender.id == me.id
    return PlatformMessage(
        message=InboundMessage(
            channel=channel,
            chat_id=str(message.chat.id),
            sender_id="" if sender is None or nobody else str(sender.id),
            id=id,
            content=text,
            timestamp=(message.edit_date or message.date) * 1000,
            thread=_thread(message),
        ),
        group=_is_group(message),
        addressed=addressed,
        own=own,
        from_bot=not own and sender is not None and sender.is_bot and not nobody,
        name="" if sender is None else " ".join(filter(None, (sender.first_name, sender.last_name))),
        replaces=replaces,
        files=files,
    )


def _is_group(message: Message) -> bool:
    return message.chat.type != "private"


def _thread(message: Message) -> str | None:
    """A topic. Replies in groups without topics have a thread id, too: they are no side
    conversation."""
    return str(message.message_thread_id) if message.is_topic_message and message.message_thread_id else None


def _words(message: Message) -> str:
    if message.sticker is not None:
        return message.sticker.emoji or "[sticker]"
    if message.location is not None:
        return f"[location: {message.location.latitude}, {message.location.longitude}]"
    if message.contact is not None:
        name = f"{message.contact.first_name} {message.contact.last_name}".strip()
        return f"[contact: {name}, {message.contact.phone_number}]"
    return (message.text or message.caption).strip()


def _files(message: Message) -> Iterator[RemoteFile]:
    if message.photo:
        yield _file(message.photo[-1], "photo.jpg", "image/jpeg")  # the last one is the biggest
    kinds = (
        (message.document if message.animation is None else None, "file", ""),
        (message.animation, "animation.mp4", "video/mp4"),
        (message.voice, "voice.ogg", "audio/ogg"),
        (message.audio, "audio.mp3", "audio/mpeg"),
        (message.video, "video.mp4", "video/mp4"),
        (message.video_note, "video.mp4", "video/mp4"),
    )
    for one, name, media_type in kinds:
        if one is not None:
            yield _file(one, name, media_type)


def _file(one: FileOf, name: str, media_type: str) -> RemoteFile:
    return RemoteFile(
        handle=one.file_id,
        name=one.file_name or name,
        media_type=one.mime_type or media_type,
        size_bytes=one.file_size,
    )


def _is_for_us(message: Message, me: Me) -> bool:
    """A mention of us, a reply to us, or a command that names nobody else."""
    reply = message.reply_to_message
    if reply is not None and reply.from_ is not None and reply.from_.id == me.id:
        return True
    text = message.text or message.caption
    command = _COMMAND.match(text)
    if command is not None:
        return command[1] is None or command[1].lower() == me.username.lower()
    units = text.encode("utf-16-le")
    for entity in message.entities or message.caption_entities:
        if entity.type == "text_mention" and entity.user is not None and entity.user.id == me.id:
            return True
        if entity.type == "mention":
            named = units[2 * entity.offset : 2 * (entity.offset + entity.length)].decode("utf-16-le", "replace")
            if named.lower() == f"@{me.username.lower()}":
                return True
    return False


def _without_our_name(text: str, me: Me) -> str:
    """Without the mention that it begins or ends with: it only says who is meant."""
    name = re.escape(me.username)
    shorter = re.sub(rf"^@{name}\b[\s,:]*|\s*@{name}$", "", text, flags=re.IGNORECASE).strip()
    return shorter or text
