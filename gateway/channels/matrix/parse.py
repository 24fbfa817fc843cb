"""Events of Matrix as messages (client-server API, "Instant Messaging", "Threading", "Event
replacements"). Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final
from urllib.parse import unquote

from gateway.channels.matrix.wire import MEMBER, MESSAGE, MXC, REDACTION, STICKER, Content, Event, Info, Known
from gateway.platform.protocol import PlatformMessage, RemoteFile
from shared.messages.inbound import InboundMessage

FORM: Final = "|"
"""Between the id of a message and that of its edited form."""

_FILES: Final = {"m.image": "image", "m.audio": "audio", "m.video": "video", "m.file": "file"}
_WORDS: Final = ("m.text", "m.notice", "m.emote", "m.location")
_QUOTE: Final = re.compile(r"> <[^\n]*(?:\n>[^\n]*)*\n\n?")
_QUOTE_HTML: Final = re.compile(r"<mx-reply>.*?</mx-reply>", re.DOTALL | re.IGNORECASE)
_PILL: Final = re.compile(r"""href\s*=\s*["']https://matrix\.to/#/((?:@|%40)[^"'?/]+)""", re.IGNORECASE)
_COMMAND: Final = re.compile(r"/\w+(?:\s|$)")


def known(event: Event) -> Known:
    """What later events need to know of this one."""
    relation = event.content.relates_to
    if relation is None:
        return Known(event.sender)
    in_thread = relation.rel_type == "m.thread" and bool(relation.event_id)
    answers = relation.in_reply_to.event_id if relation.in_reply_to else ""
    if in_thread and relation.is_falling_back:
        answers = ""
    return Known(event.sender, relation.event_id if in_thread else None, answers or None)


def replaced(event: Event) -> str | None:
    """The id of the message that this event is the edited form of."""
    relation = event.content.relates_to
    if relation is None or relation.rel_type != "m.replace" or event.content.new_content is None:
        return None
    return relation.event_id or None


def redacted(event: Event) -> str | None:
    """The id of the event that was taken back; it stands in two places (room versions before 11,
    and since)."""
    return (event.content.redacts or event.redacts or None) if event.type == REDACTION else None


def invited_by(events: Sequence[Event], me: str) -> str | None:
    """Who asked us in."""
    for event in events:
        if event.type == MEMBER and event.state_key == me and event.content.membership == "invite":
            return event.sender
    return None


def came_in(events: Sequence[Event], me: str) -> int | None:
    """Where what is meant for us begins, if we came into the room in this time: behind the
    invitation, or behind our coming. None: we were there before."""
    start, joined = 0, False
    for number, event in enumerate(events):
        if event.type != MEMBER or event.state_key != me:
            continue
        before = event.unsigned.prev_content.membership if event.unsigned and event.unsigned.prev_content else ""
        if event.content.membership == "invite":
            start = number + 1
        elif event.content.membership == "join" and before != "join":
            start, joined = start or number + 1, True
    return start if joined else None


def heard(
    channel: str,
    room: str,
    event: Event,
    members: Mapping[str, str],
    me: str,
    *,
    first: Known | None = None,
    answered: str | None = None,
) -> PlatformMessage | None:
    """What was said; None for what says nothing to us, such as reactions, or an edit of somebody
    else's message.

    `members` of the room, with what they call themselves; `first`: the message that an edit
    replaces; `answered`: who wrote what this one answers.
    """
    original = replaced(event)
    if event.type not in (MESSAGE, STICKER) or not event.event_id or not event.sender:
        return None
    if original is not None and (first is None or first.sender != event.sender):
        return None
    content = event.content.new_content or event.content if original is not None else event.content
    text, files = _words(event.type, content), tuple(_file(content))
    if not text and not files:
        return None
    group, named = len(members) > 2, _names_us(content, me)
    where = first if first is not None and original is not None else known(event)
    return PlatformMessage(
        message=InboundMessage(
            channel=channel,
            chat_id=room,
            sender_id=event.sender,
            id=event.event_id if original is None else f"{original}{FORM}{event.event_id}",
            content=_without_our_name(text, me, members.get(me, "")) if named else text,
            timestamp=max(0, event.origin_server_ts),
            thread=where.thread,
        ),
        group=group,
        addressed=not group or named or answered == me or _COMMAND.match(text) is not None,
        own=event.sender == me,
        from_bot=event.sender != me and content.msgtype == "m.notice",
        name=members.get(event.sender, ""),
        replaces=original,
        files=files,
    )


def _words(type: str, content: Content) -> str:
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


def _file(content: Content) -> Iterator[RemoteFile]:
    if content.msgtype not in _FILES or not MXC.fullmatch(content.url):
        return
    info = content.info or Info()
    size = int(info.size) if info.size is not None and info.size >= 0 else None
    name = content.filename or content.body or _FILES[content.msgtype]
    yield RemoteFile(handle=content.url, name=name, media_type=info.mimetype, size_bytes=size)


def _names_us(content: Content, me: str) -> bool:
    """In `m.mentions`, by a link with our id, or by our id in so many words."""
    if content.mentions is not None and me in content.mentions.user_ids:
        return True
    linked = _PILL.findall(_QUOTE_HTML.sub("", content.formatted_body))
    if any(unquote(one) == me for one in linked):
        return True
    body = _QUOTE.sub("", content.body, count=1) if content.body.startswith("> <") else content.body
    return re.search(rf"(?<![\w@]){re.escape(me)}(?![\w.:-]*\w)", body) is not None


def _without_our_name(text: str, me: str, name: str) -> str:
    """Without the mention that it begins or ends with: it only says who is meant."""
    names = "|".join([re.escape(me), re.escape(me.partition(":")[0]), *([f"@?{re.escape(name)}"] if name else [])])
    shorter = re.sub(rf"^(?:{names})(?=[\s,:]|$)[\s,:]*|\s+(?:{names})$", "", text, flags=re.IGNORECASE).strip()
    return shorter or text
