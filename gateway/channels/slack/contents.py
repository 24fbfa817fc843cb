"""What a message of Slack's says: its words and its files, also those of messages that it passes
on. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator

from msgspec import Struct

from gateway.channels.slack.wire import FileOf, Message, attachments_in, files_in
from gateway.platform.protocol import RemoteFile
from gateway.text.incoming import slack_to_text


class Me(Struct, frozen=True):
    """Who the bot is, and in which workspace."""

    team_id: str
    user_id: str
    bot_id: str
    name: str = ""


def text_of(message: Message, me: Me) -> str:
    """Its words as a person reads them, what it passes on, and the addresses of files that are kept
    elsewhere."""
    return "\n\n".join(filter(None, [_own_words(message, me), *_passed_on(message), *_linked(message)]))


def files_of(message: Message) -> Iterator[RemoteFile]:
    """Its files that Slack has. The handle is an address or, where Slack tells none (in channels
    that two workspaces share), the file's id."""
    for one in _all_files(message):
        if one.mode not in ("external", "tombstone", "hidden_by_limit"):
            yield RemoteFile(
                handle=one.url_private_download or one.url_private or one.id,
                name=one.name or one.title or "",
                media_type=one.mimetype or "",
                size_bytes=one.size,
            )


def names_us(message: Message, me: Me) -> bool:
    """Whether we are mentioned."""
    return re.search(_mention(me), message.text or "") is not None


def _mention(me: Me) -> str:
    return rf"<@{re.escape(me.user_id)}(?:\|[^<>]*)?>"


def _own_words(message: Message, me: Me) -> str:
    """Without the mention of us that it begins or ends with: that only says who is meant."""
    name, raw = _mention(me), message.text or ""
    shorter = re.sub(rf"^\s*{name}[\s,:]*|\s*{name}\s*$", "", raw).strip()
    return slack_to_text(re.sub(name, lambda _: f"@{me.name or me.user_id}", shorter or raw)).strip()


def _passed_on(message: Message) -> Iterator[str]:
    for one in attachments_in(message):
        if one.is_share and (text := slack_to_text(one.text or one.fallback or "").strip()):
            author = " ".join((one.author_name or "somebody").split())
            yield f"[forwarded from {author}]\n{text}"


def _linked(message: Message) -> Iterator[str]:
    for one in _all_files(message):
        if one.mode == "external" and one.url_private:
            yield f"[{one.title or one.name or 'file'}: {one.url_private}]"


def _all_files(message: Message) -> Iterator[FileOf]:
    yield from files_in(message)
    for one in attachments_in(message):
        if one.is_share:
            yield from files_in(one)
