"""Read the text, the files and the answered message of a message of Discord. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from gateway.channels.discord.wire import DiscordIdentity, Message, MessageBody, Referenced
from gateway.platform.protocol import RemoteFile
from gateway.text.fields import dicts_at, dicts_in, text_at
from gateway.text.quotes import Quote, lines_of

DEEPEST: Final = 8  # components within components that are read
_NAMED: Final = re.compile(r"<@!?([0-9]+)>")
_INNER: Final = ("components", "accessory", "component")
_PREVIEW: Final = re.compile("article|gifv|image|link|video")
"""Types of embeds that Discord adds to a link: their words are the page's, and the link is
there."""


def message_text(message: Referenced, me: DiscordIdentity) -> str:
    """Return all that a person reads of a message and of those it forwards, without a leading or
    trailing mention of the bot, which only addresses us."""
    name = rf"<@!?{me.id}>"
    shorter = re.sub(rf"^\s*(?:{name}[\s,:]*)+|\s*{name}\s*$", "", message.content).strip()
    bodies = [_body_text(message, shorter or message.content, me)]
    bodies += [_body_text(one.message, one.message.content, me) for one in message.message_snapshots]
    return "\n\n".join(filter(None, bodies))


def message_files(message: Referenced) -> tuple[RemoteFile, ...]:
    """Return the files of a message and of those it forwards."""
    bodies = (message, *(one.message for one in message.message_snapshots))
    return tuple(
        RemoteFile(
            handle=file.url,
            name=file.filename,
            media_type=(file.content_type or "").partition(";")[0].strip(),
            size_bytes=file.size,
        )
        for body in bodies
        for file in body.attachments
    )


def has_words_of_others(message: Referenced) -> bool:
    """Return whether it forwards a message, or has words that others wrote or named: anybody may
    name a sticker, and an embed may be that of a page."""
    return bool(message.message_snapshots or message.sticker_items or message.poll or _embeds(message))


def answered_quote(message: Message, me: DiscordIdentity) -> Quote | None:
    """Return the message that this one answers."""
    answered = message.referenced_message
    if answered is None:
        return None
    files = ", ".join(f"[file: {one.name}]" for one in message_files(answered))
    author = answered.author
    ours = author is not None and (author.id == me.id or (message.author and author.id == message.author.id))
    name = (author.global_name or author.username) if author is not None else ""
    return Quote(lines_of(message_text(answered, me), files), name, bool(ours) and not has_words_of_others(answered))


def _body_text(body: MessageBody, content: str, me: DiscordIdentity) -> str:
    names = {one.id: f"@{one.username}" for one in body.mentions if one.username}
    names[me.id] = f"@{me.username}"
    text = _NAMED.sub(lambda found: names.get(found[1], found[0]), content)
    stickers = (f"[sticker: {one.name}]" for one in body.sticker_items)
    parts = (
        text,
        *map(_embed_text, _embeds(body)),
        _poll_text(body.poll),
        *_component_texts(body.components),
        *stickers,
    )
    return "\n\n".join(part.strip() for part in parts if part.strip())


def _embeds(body: MessageBody) -> list[dict[str, Any]]:
    """Return the embeds that are read."""
    embeds = dicts_in(body.embeds)
    return [one for one in embeds if not body.content or not _PREVIEW.fullmatch(text_at(one, "type"))]


def _embed_text(embed: Mapping[str, Any]) -> str:
    fields = (f"{text_at(one, 'name')}: {text_at(one, 'value')}".strip(": ") for one in dicts_at(embed, "fields"))
    return lines_of(
        text_at(embed, "author", "name"),
        text_at(embed, "title"),
        text_at(embed, "description"),
        *fields,
        text_at(embed, "footer", "text"),
    )


def _poll_text(poll: object) -> str:
    question = text_at(poll, "question", "text")
    answers = (text_at(one, "poll_media", "text") for one in dicts_at(poll, "answers"))
    return lines_of(f"[poll: {question}]", *(f"- {one}" for one in answers if one)) if poll else ""


def _component_texts(components: object, depth: int = 0) -> Iterator[str]:
    """Yield the texts of a message that is laid out in components."""
    for one in dicts_in(components) if depth < DEEPEST else ():
        yield text_at(one, "content")
        for key in _INNER:
            yield from _component_texts(one.get(key), depth + 1)
