"""Convert Matrix events into messages (client-server API, "Instant Messaging", "Threading", "Event
replacements"). Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final
from urllib.parse import unquote

from gateway.channels.matrix.wire import (
    MEMBER,
    MESSAGE,
    MXC,
    REDACTION,
    STICKER,
    Content,
    Event,
    EventSummary,
    FileInfo,
)
from gateway.platform.protocol import PlatformMessage, RemoteFile
from gateway.text.quotes import QUOTE_CHARS, Quote, is_strange, lines_of, with_quote
from shared.messages.inbound import InboundMessage

FORM: Final = "|"
"""Separates the id of a message from that of its edit."""

_FILES: Final = {"m.image": "image", "m.audio": "audio", "m.video": "video", "m.file": "file"}
_WORDS: Final = ("m.text", "m.notice", "m.emote", "m.location")
_QUOTE: Final = re.compile(r"> <[^\n]*(?:\n>[^\n]*)*\n\n?")
_QUOTE_HTML: Final = re.compile(r"<mx-reply>.*?</mx-reply>", re.DOTALL | re.IGNORECASE)
_PILL: Final = re.compile(r"""href\s*=\s*["']https://matrix\.to/#/((?:@|%40)[^"'?/]+)""", re.IGNORECASE)
_COMMAND: Final = re.compile(r"/\w+(?:\s|$)")


def summarize_event(event: Event) -> EventSummary:
    """Return what later events need to know of this one."""
    relation = event.content.relates_to
    text = _quotable_text(event)
    if relation is None:
        return EventSummary(event.sender, text=text)
    in_thread = relation.rel_type == "m.thread" and bool(relation.event_id)
    answers = relation.in_reply_to.event_id if relation.in_reply_to else ""
    if in_thread and relation.is_falling_back:
        answers = ""
    return EventSummary(event.sender, relation.event_id if in_thread else None, answers or None, text)


def answered_quote(answered: EventSummary, sender: str, members: Mapping[str, str], me: str) -> Quote:
    """Return the message that `sender` answers. Matrix does not say what was forwarded."""
    author = members.get(answered.sender) or answered.sender
    return Quote(answered.text, author, answered.sender in (me, sender))


def replaced_id(event: Event) -> str | None:
    """Return the id of the message that this event is an edit of."""
    relation = event.content.relates_to
    if relation is None or relation.rel_type != "m.replace" or event.content.new_content is None:
        return None
    return relation.event_id or None


def redacted_id(event: Event) -> str | None:
    """Return the id of the deleted event; its place differs before and since room version 11."""
    return (event.content.redacts or event.redacts or None) if event.type == REDACTION else None


def inviter(events: Sequence[Event], me: str) -> str | None:
    """Return the user who invited us."""
    for event in events:
        if event.type == MEMBER and event.state_key == me and event.content.membership == "invite":
            return event.sender
    return None


def start_after_join(events: Sequence[Event], me: str) -> int | None:
    """Return the index after which events are for us, if we joined in this period: after the
    invitation, or after our join. None: we were in the room before."""
    start = 0
    joined = False
    for number, event in enumerate(events):
        if event.type != MEMBER or event.state_key != me:
            continue
        previous = event.unsigned.prev_content if event.unsigned else None
        before = previous.membership if previous else ""
        if event.content.membership == "invite":
            start = number + 1
        elif event.content.membership == "join" and before != "join":
            start = start or number + 1
            joined = True
    return start if joined else None


def parse_event(
    channel: str,
    room: str,
    event: Event,
    members: Mapping[str, str],
    me: str,
    *,
    first: EventSummary | None = None,
    answered: str | None = None,
    quote: Quote | None = None,
) -> PlatformMessage | None:
    """Return the message; None if there is none for us, e.g. an edit of another user's message.
    `members` maps users to display names; an edit replaces `first`; `answered` wrote the replied
    message, and `quote` has its words."""
    original = replaced_id(event)
    if event.type not in (MESSAGE, STICKER) or not event.event_id or not event.sender:
        return None
    if original is not None and (first is None or first.sender != event.sender):
        return None
    content = event.content.new_content or event.content if original is not None else event.content
    text = _message_text(event.type, content)
    files = tuple(_message_files(content))
    if not text and not files:
        return None
    group = len(members) > 2
    named = _mentions_us(content, me)
    where = first if first is not None and original is not None else summarize_event(event)
    return PlatformMessage(
        message=InboundMessage(
            channel=channel,
            chat_id=room,
            sender_id=event.sender,
            id=event.event_id if original is None else f"{original}{FORM}{event.event_id}",
            content=with_quote(_strip_own_mention(text, me, members.get(me, "")) if named else text, quote),
            timestamp=max(0, event.origin_server_ts),
            thread=where.thread,
        ),
        group=group,
        addressed=not group or named or answered == me or _COMMAND.match(text) is not None,
        own=event.sender == me,
        from_bot=event.sender != me and content.msgtype == "m.notice",
        # Others named the sticker, the place.
        forwarded=event.type == STICKER or content.msgtype == "m.location" or is_strange(quote),
        name=members.get(event.sender, ""),
        replaces=original,
        files=files,
    )


def _quotable_text(event: Event) -> str:
    files = ", ".join(f"[file: {one.name}]" for one in _message_files(event.content))
    return lines_of(_message_text(event.type, event.content), files)[: QUOTE_CHARS + 1]


def _message_text(type: str, content: Content) -> str:
    body = _QUOTE.sub("", content.body, count=1) if content.body.startswith("> <") else content.body
    if type == STICKER:
        return body.strip() or "[sticker]"
    if content.msgtype in _FILES:
        return body.strip() if content.filename and content.filename != content.body else ""
    if content.msgtype not in _WORDS:
        return ""
    if content.msgtype == "m.location" and content.geo_uri:
        return f"[location: {content.geo_uri.removeprefix('geo:')}] {body}".strip()
    return body.strip()


def _message_files(content: Content) -> Iterator[RemoteFile]:
    if content.msgtype not in _FILES or not MXC.fullmatch(content.url):
        return
    info = content.info or FileInfo()
    size = int(info.size) if info.size is not None and info.size >= 0 else None
    name = content.filename or content.body or _FILES[content.msgtype]
    yield RemoteFile(handle=content.url, name=name, media_type=info.mimetype, size_bytes=size)


def _mentions_us(content: Content, me: str) -> bool:
    """Return whether `m.mentions`, a link with our id, or our id in the text names us."""
    if content.mentions is not None and me in content.mentions.user_ids:
        return True
    linked = _PILL.findall(_QUOTE_HTML.sub("", content.formatted_body))
    if any(unquote(one) == me for one in linked):
        return True
    body = _QUOTE.sub("", content.body, count=1) if content.body.startswith("> <") else content.body
    return re.search(rf"(?<![\w@]){re.escape(me)}(?![\w.:-]*\w)", body) is not None


def _strip_own_mention(text: str, me: str, name: str) -> str:
    """Remove a leading or trailing mention of the bot: it only addresses us."""
    names = f"{re.escape(me)}|{re.escape(me.partition(':')[0])}{f'|@?{re.escape(name)}' if name else ''}"
    pattern = rf"^(?:{names})(?=[\s,:]|$)[\s,:]*|\s+(?:{names})$"
    shorter = re.sub(pattern, "", text, flags=re.IGNORECASE).strip()
    return shorter or text
