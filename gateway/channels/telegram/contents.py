"""Read the text, the files and the answered message of a message of Telegram. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from gateway.channels.telegram.wire import MediaFile, Message, Origin, Poll
from gateway.platform.protocol import RemoteFile
from gateway.text.quotes import Quote, forwarded_from, lines_of


def message_text(message: Message) -> str:
    """Return all that a person reads of a message; of a forwarded one also who wrote it."""
    if message.sticker is not None:
        text = message.sticker.emoji or "[sticker]"
    else:
        text = lines_of(message.text or message.caption, *_object_lines(message))
    if message.forward_origin is None or not (text or message_files(message)):
        return text
    return forwarded_from(_origin_name(message.forward_origin), text)


def has_words_of_others(message: Message) -> bool:
    """Return whether it was forwarded, or has words that others wrote or named."""
    theirs = (
        message.forward_origin,
        message.via_bot,
        message.contact,
        message.venue,
        message.poll,
        message.checklist,
        message.game,
        message.invoice,
    )
    return any(one is not None for one in theirs)


def answered_quote(message: Message, our_id: int) -> Quote | None:
    """Return the message that this one answers, or the part of it that the person chose."""
    answered = message.reply_to_message
    chosen = message.quote.text if message.quote else ""
    if answered is None:
        origin = message.external_reply.origin if message.external_reply else None
        return Quote(chosen, _origin_name(origin) if origin else "") if chosen else None
    files = ", ".join(f"[file: {one.name}]" for one in message_files(answered))
    text = chosen or lines_of(message_text(answered), files)
    sender = message.from_.id if message.from_ else 0
    author = answered.from_
    known = author is not None and author.id in (our_id, sender) and not has_words_of_others(answered)
    return Quote(text, _author_name(answered), known and answered.sender_chat is None)


def _author_name(message: Message) -> str:
    if message.sender_chat is not None:
        return message.sender_chat.title
    return message.from_.full_name if message.from_ else ""


def _origin_name(origin: Origin) -> str:
    chat = origin.sender_chat or origin.chat
    return (
        origin.sender_user.full_name if origin.sender_user else origin.sender_user_name or (chat.title if chat else "")
    )


def _object_lines(message: Message) -> Iterator[str]:
    """Yield what a message has besides text and files, each as lines."""
    if (place := message.venue) is not None:
        yield f"[place: {', '.join(filter(None, [place.title, place.address]))}]"
    if (at := message.location) is not None:
        yield f"[location: {at.latitude}, {at.longitude}]"
    if (card := message.contact) is not None:
        yield f"[contact: {f'{card.first_name} {card.last_name}'.strip()}, {card.phone_number}]"
    if message.poll is not None:
        yield _poll_text(message.poll)
    if (tasks := message.checklist) is not None:
        done = (f"- [{'x' if one.completion_date else ' '}] {one.text}" for one in tasks.tasks)
        yield "\n".join([f"[checklist: {tasks.title}]", *done])
    if (game := message.game) is not None:
        yield f"[game: {game.title}]\n{game.description}"
    if (bill := message.invoice) is not None:
        yield f"[invoice: {bill.title}]\n{bill.description}"
    if message.dice is not None:
        yield f"[{message.dice.emoji or 'dice'}: {message.dice.value}]"
    if message.story is not None:
        yield "[story]"


def _poll_text(poll: Poll) -> str:
    options = (f"- {one.text}" for one in poll.options)
    return lines_of(f"[poll: {poll.question}]", poll.description, *options, poll.explanation)


def _paid_files(message: Message) -> Iterator[tuple[MediaFile | None, str, str]]:
    for one in message.paid_media.paid_media if message.paid_media else ():
        yield one.photo[-1] if one.photo else None, "photo.jpg", "image/jpeg"
        yield one.video, "video.mp4", "video/mp4"


def message_files(message: Message) -> tuple[RemoteFile, ...]:
    """Return the files of a message, of pictures the biggest."""
    kinds = (
        # The last photo is the biggest.
        (message.photo[-1] if message.photo else None, "photo.jpg", "image/jpeg"),
        (message.document if message.animation is None else None, "file", ""),
        (message.animation, "animation.mp4", "video/mp4"),
        (message.voice, "voice.ogg", "audio/ogg"),
        (message.audio, "audio.mp3", "audio/mpeg"),
        (message.video, "video.mp4", "video/mp4"),
        (message.video_note, "video.mp4", "video/mp4"),
        *_paid_files(message),
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
