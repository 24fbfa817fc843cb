"""Responses of a homeserver, as far as we read them (client-server API). Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec
from msgspec import field

from gateway.platform.nulls import NullTolerantDecoder

MESSAGE: Final = "m.room.message"
STICKER: Final = "m.sticker"
MEMBER: Final = "m.room.member"
REDACTION: Final = "m.room.redaction"
ENCRYPTED: Final = "m.room.encrypted"
TYPES: Final = (MESSAGE, STICKER, MEMBER, REDACTION, ENCRYPTED)

MXC: Final = re.compile(r"mxc://([\w.:\[\]-]+)/([\w-]+)", re.ASCII)

KEY: Final = "dev.shoal.key"
"""Field of a message's content by which a look-up finds it. Clients do not show it."""


class _Relation(msgspec.Struct, frozen=True):
    rel_type: str = ""
    event_id: str = ""
    is_falling_back: bool = False  # in a thread, to be no real reply
    in_reply_to: _Relation | None = field(name="m.in_reply_to", default=None)


class _Mentions(msgspec.Struct, frozen=True):
    user_ids: tuple[str, ...] = ()


class FileInfo(msgspec.Struct, frozen=True):
    """Type and size of a file, as its sender claims."""

    mimetype: str = ""
    size: int | float | None = None


class Content(msgspec.Struct, frozen=True):
    """The parts of an event's content that we read."""

    msgtype: str = ""
    body: str = ""
    formatted_body: str = ""
    filename: str = ""
    url: str = ""
    geo_uri: str = ""
    membership: str = ""
    redacts: str = ""
    info: FileInfo | None = None
    relates_to: _Relation | None = field(name="m.relates_to", default=None)
    mentions: _Mentions | None = field(name="m.mentions", default=None)
    key: str = field(name=KEY, default="")
    new_content: Content | None = field(name="m.new_content", default=None)


class _Unsigned(msgspec.Struct, frozen=True):
    prev_content: Content | None = None


class Event(msgspec.Struct, frozen=True):
    """An event of a room. `origin_server_ts` is the claim of the sender's server, in ms."""

    type: str
    event_id: str = ""
    sender: str = ""
    origin_server_ts: int = 0
    state_key: str | None = None
    redacts: str = ""
    content: Content = Content()
    unsigned: _Unsigned | None = None


class Timeline(msgspec.Struct, frozen=True):
    """New events, or visible state; `limited`: earlier ones were left out, before `prev_batch`."""

    events: tuple[msgspec.Raw, ...] = ()
    limited: bool = False
    prev_batch: str = ""


class Room(msgspec.Struct, frozen=True):
    """A room that we are in, or with `invite_state` one that we are invited to."""

    timeline: Timeline = Timeline()
    invite_state: Timeline = Timeline()


class _Rooms(msgspec.Struct, frozen=True):
    join: dict[str, Room] = {}
    invite: dict[str, Room] = {}


class Sync(msgspec.Struct, frozen=True):
    """The response to a sync."""

    next_batch: str
    rooms: _Rooms = _Rooms()


class EventSummary(msgspec.Struct, frozen=True):
    """The part of an earlier event that later ones need."""

    sender: str
    thread: str | None = None
    answers: str | None = None
    text: str = ""  # as a quote has it


class _Profile(msgspec.Struct, frozen=True):
    display_name: str | None = None


class Reply(msgspec.Struct, frozen=True):
    """The replies of all calls but sync: our user, an access token, the event that a post became,
    the address of an uploaded file, the members of a room, or a page of it, newest first, whose
    `end` leads to the next one."""

    user_id: str = ""
    access_token: str = ""
    event_id: str = ""
    content_uri: str = ""
    joined: dict[str, _Profile] = {}
    chunk: tuple[msgspec.Raw, ...] = ()
    end: str | None = None


_event: Final = NullTolerantDecoder(Event)


def read_events(raw: Sequence[msgspec.Raw]) -> Iterator[Event]:
    """Yield the events that can be decoded: a strange one must not block those after it."""
    for one in raw:
        if (event := read_event(bytes(one))) is not None:
            yield event


def read_event(body: bytes) -> Event | None:
    """Decode an event; None if it has an unknown form."""
    try:
        return _event.decode(body)
    except (msgspec.DecodeError, RecursionError):
        return None
