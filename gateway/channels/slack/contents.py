"""Read the text and the files of a message of Slack. Pure.

What a person writes is in `text` and again in `blocks`; an app may use only one of them, or
`attachments`. A block or an attachment is read if its words are nowhere else.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from gateway.channels.slack.blocks import block_texts
from gateway.channels.slack.wire import Attachment, Message, SlackFile, SlackIdentity, attachments_in, files_in
from gateway.platform.protocol import RemoteFile
from gateway.text.fields import dicts_in, text_at
from gateway.text.incoming import slack_to_text
from gateway.text.quotes import Quote, forwarded_from, lines_of


def message_text(message: Message, me: SlackIdentity) -> str:
    """Return the text as a person reads it, without a leading or trailing mention of the bot, which
    only addresses us; attachments, forwarded texts, and links to externally stored files."""
    name = _mention(me)
    raw = raw_text(message)
    shorter = re.sub(rf"^\s*{name}[\s,:]*|\s*{name}\s*$", "", raw).strip()
    named = re.sub(name, lambda _: f"@{me.name or me.user_id}", shorter or raw)
    parts = [slack_to_text(named).strip(), *map(_attachment_text, _read_attachments(message))]
    parts += [
        f"[{one.title or one.name or 'file'}: {one.url_private}]"
        for one in _all_files(message)
        if one.mode == "external" and one.url_private
    ]
    return "\n\n".join(filter(None, parts))


def raw_text(message: Message) -> str:
    """Return what a message says outside its attachments, with Slack's references."""
    return _with_blocks(message.text or "", message.blocks)


def names_us(message: Message, me: SlackIdentity) -> bool:
    """Return whether it mentions the bot."""
    return re.search(_mention(me), raw_text(message)) is not None


def has_words_of_others(message: Message) -> bool:
    """Return whether it has an attachment, such as a shared message, or a file stored elsewhere,
    which whoever owns it named."""
    return bool(_read_attachments(message)) or any(one.mode == "external" for one in _all_files(message))


def answered_quote(message: Message, sender: str, me: SlackIdentity) -> Quote:
    """Return a message that somebody answers."""
    text = lines_of(message_text(message, me), ", ".join(f"[file: {one.name}]" for one in message_files(message)))
    familiar = message.user in (me.user_id, sender) and not has_words_of_others(message)
    author = me.name if message.user == me.user_id else message.username or message.user
    return Quote(text, author or "", familiar)


def message_files(message: Message) -> Iterator[RemoteFile]:
    """Yield the files stored at Slack. The handle is a URL, or the file's id if Slack gives no URL
    (channels shared between two workspaces)."""
    for one in _all_files(message):
        if one.mode not in ("external", "tombstone", "hidden_by_limit"):
            yield RemoteFile(
                handle=one.url_private_download or one.url_private or one.id,
                name=one.name or one.title or "",
                media_type=one.mimetype or "",
                size_bytes=one.size,
            )


def _mention(me: SlackIdentity) -> str:
    return rf"<@{re.escape(me.user_id)}(?:\|[^<>]*)?>"


def _with_blocks(text: str, blocks: object) -> str:
    """Return a text with the blocks whose words it does not have."""
    known = _letters(text)
    return "\n\n".join(filter(None, [text, *(one for one in block_texts(blocks) if _letters(one) not in known)]))


def _letters(raw: str) -> str:
    """Return a text without all that its markup changes."""
    return "".join(filter(str.isalnum, slack_to_text(raw))) or raw.strip()


def _read_attachments(message: Message) -> list[Attachment]:
    """Return the attachments that are read. Beside the words of a person are previews of links."""
    speaks = bool(message.bot_id) or not raw_text(message).strip()
    return [one for one in attachments_in(message) if one.is_share or (speaks and not one.from_url)]


def _attachment_text(one: Attachment) -> str:
    if one.is_share:
        text = slack_to_text(_with_blocks(one.text or "", _shared_blocks(one)) or one.fallback or "").strip()
        return forwarded_from(one.author_name or "", text) if text else ""
    fields = (f"{text_at(field, 'title')}: {text_at(field, 'value')}".strip(": ") for field in dicts_in(one.fields))
    inner = _with_blocks(one.text or "", one.blocks)
    text = lines_of(one.pretext, one.author_name, one.title, inner, *fields, one.footer)
    return slack_to_text(text or one.fallback or "").strip()


def _shared_blocks(one: Attachment) -> object:
    """Return the blocks of a shared message."""
    inner = [block for outer in dicts_in(one.message_blocks) for block in dicts_in(_inner_blocks(outer))]
    return inner or one.blocks


def _inner_blocks(outer: dict[str, object]) -> object:
    message = outer.get("message")
    return message.get("blocks") if isinstance(message, dict) else None


def _all_files(message: Message) -> Iterator[SlackFile]:
    yield from files_in(message)
    for one in attachments_in(message):
        if one.is_share:
            yield from files_in(one)
