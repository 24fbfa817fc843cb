"""Pond's events as messages, its markup, and the signatures of its webhook. Pure."""

from __future__ import annotations

import hashlib
import hmac
import html
import re
from collections.abc import Callable
from typing import Final

import msgspec

from shoal.plugin import InboundMessage, Piece, PlatformMessage, RemoteFile

BOT: Final = "shoal"
LIMIT: Final = 400
OLD_S: Final = 300


class PondFile(msgspec.Struct, frozen=True):
    """A file of a message; the bytes are fetched by its handle."""

    handle: str
    name: str = ""
    type: str = ""
    bytes: int | None = None


class Event(msgspec.Struct, frozen=True):
    """What Pond tells. `kind` is `message`, `edit` (`id` is a new one, `of` the message that is changed), `delete`."""

    kind: str
    id: str
    chat: str
    sender: str
    at: int
    number: int = 0
    text: str = ""
    of: str = ""
    group: bool = False
    is_bot: bool = False
    mentions: tuple[str, ...] = ()
    files: tuple[PondFile, ...] = ()


read_event: Callable[[bytes], Event] = msgspec.json.Decoder(Event).decode


def received(channel: str, event: Event) -> PlatformMessage:
    """The event as a message. Ids are Pond's own."""
    message = InboundMessage(
        channel=channel,
        chat_id=event.chat,
        sender_id=event.sender,
        id=event.id,
        content=event.text,
        timestamp=event.at,
    )
    return PlatformMessage(
        message=message,
        group=event.group,
        addressed=not event.group or BOT in event.mentions,
        own=event.sender == BOT,
        from_bot=event.is_bot,
        replaces=event.of or None,
        files=tuple(
            RemoteFile(handle=file.handle, name=file.name, media_type=file.type, size_bytes=file.bytes)
            for file in event.files
        ),
    )


def render(markdown: str) -> list[Piece]:
    """Bold and italic words in pieces of at most LIMIT characters, cut at the ends of lines, else anywhere."""
    pieces, rest = [], markdown.strip() or "…"
    while rest:
        part = rest[:LIMIT]
        while len(_markup(part)) > LIMIT:
            part = part[: len(part) - max(1, (len(_markup(part)) - LIMIT) // 5)]
        if len(part) < len(rest) and (border := part.rfind("\n", 1)) > 0:
            part = part[:border]
        rest = rest[len(part) :].strip("\n")
        pieces.append(Piece(_markup(part), _plain(part)))
    return pieces


def _markup(text: str) -> str:
    text = html.escape(text, quote=False)
    text = re.sub(r"\*\*([^*\n]+)\*\*", r"<b>\1</b>", text)
    return re.sub(r"\*([^*\n]+)\*", r"<i>\1</i>", text)


def _plain(text: str) -> str:
    return re.sub(r"\*{1,2}([^*\n]+)\*{1,2}", r"\1", text)


def is_signed(secret: str, body: bytes, time: str, signature: str, *, now_s: float) -> bool:
    """Whether Pond made this call, less than five minutes ago."""
    if not time.isdecimal() or abs(now_s - int(time)) > OLD_S:
        return False
    wanted = hmac.new(secret.encode(), time.encode() + b"." + body, hashlib.sha256).hexdigest()
    return hmac.compare_digest(wanted.encode(), signature.encode())
