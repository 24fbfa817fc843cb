"""Read the text and files of a Slack message, including messages forwarded with it. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator

from msgspec import Struct

from gateway.channels.slack.wire import Message, SlackFile, attachments_in, files_in
from gateway.platform.protocol import RemoteFile
from gateway.text.incoming import slack_to_text


class SlackIdentity(Struct, frozen=True):
    """The bot's ids and the workspace it is in."""

    team_id: str
    user_id: str
    bot_id: str
    name: str = ""


def message_text(message: Message, me: SlackIdentity) -> str:
    """Return the text as a person reads it, forwarded texts, and links to externally stored
    files."""
    return "\n\n".join(filter(None, [_own_text(message, me), *_forwarded_texts(message), *_external_links(message)]))


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


def mentions_us(message: Message, me: SlackIdentity) -> bool:
    """Return whether the message mentions the bot."""
    return re.search(_mention(me), message.text or "") is not None


def _mention(me: SlackIdentity) -> str:
    return rf"<@{re.escape(me.user_id)}(?:\|[^<>]*)?>"


def _own_text(message: Message, me: SlackIdentity) -> str:
    """Return the message's own text without a leading or trailing mention of the bot: it only
    addresses us."""
    name, raw = _mention(me), message.text or ""
    shorter = re.sub(rf"^\s*{name}[\s,:]*|\s*{name}\s*$", "", raw).strip()
    return slack_to_text(re.sub(name, lambda _: f"@{me.name or me.user_id}", shorter or raw)).strip()


def _forwarded_texts(message: Message) -> Iterator[str]:
    for one in attachments_in(message):
        if one.is_share and (text := slack_to_text(one.text or one.fallback or "").strip()):
            author = " ".join((one.author_name or "somebody").split())
            yield f"[forwarded from {author}]\n{text}"


def _external_links(message: Message) -> Iterator[str]:
    for one in _all_files(message):
        if one.mode == "external" and one.url_private:
            yield f"[{one.title or one.name or 'file'}: {one.url_private}]"


def _all_files(message: Message) -> Iterator[SlackFile]:
    yield from files_in(message)
    for one in attachments_in(message):
        if one.is_share:
            yield from files_in(one)
