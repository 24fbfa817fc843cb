"""Convert updates of the Bot API into messages (core.telegram.org/bots/api#update). Pure."""

from __future__ import annotations

import re
from typing import Final

import msgspec

from gateway.channels.telegram.contents import answered_quote, has_words_of_others, message_files, message_text
from gateway.channels.telegram.wire import CallbackQuery, Message, Update, User
from gateway.platform.protocol import PlatformMessage, RemoteFile
from gateway.text.quotes import is_strange, with_quote
from shared.messages.inbound import InboundMessage

ALLOWED_UPDATES: Final = ("message", "edited_message", "callback_query")
BY_NUMBER: Final = "#"  # before a button's number, if its text does not fit into the callback data
_NOBODY: Final = {1087968824, 136817688}  # anonymous administrators, a channel posting in its group
_COMMAND: Final = re.compile(r"/\w+(?:@(\w+))?(?:\s|$)")


class TelegramIdentity(msgspec.Struct, frozen=True):
    """The bot's own id and username."""

    id: int
    username: str


def parse_update(channel: str, update: Update, me: TelegramIdentity) -> PlatformMessage | None:
    """Return the message of an update; None if it holds none for us, e.g. joins or pins."""
    if update.callback_query is not None:
        return _parse_press(channel, update.callback_query)
    message = update.edited_message or update.message
    if message is None or message.chat.type == "channel":
        return None
    text = message_text(message)
    files = message_files(message)
    if not text and not files:
        return None
    quote = answered_quote(message, me.id)
    id = f"{message.chat.id}/{message.message_id}"  # unique across chats
    edited = update.edited_message is not None
    group = message.chat.type != "private"
    return _platform_message(
        channel,
        message,
        message.from_,
        id=f"{id}/{message.edit_date}" if edited else id,
        text=with_quote(_strip_own_mention(text, me) if group else text, quote),
        addressed=not group or _is_addressed(message, me),
        own=message.from_ is not None and message.from_.id == me.id,
        of_others=has_words_of_others(message) or is_strange(quote),
        replaces=id if edited else None,
        files=files,
        album=message.media_group_id,
    )


def _parse_press(channel: str, press: CallbackQuery) -> PlatformMessage | None:
    message = press.message
    says = press.data
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
    of_others: bool = False,
    replaces: str | None = None,
    files: tuple[RemoteFile, ...] = (),
    album: str = "",
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
        forwarded=of_others,
        name=sender.full_name if sender else "",
        replaces=replaces,
        files=files,
        album=album,
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
