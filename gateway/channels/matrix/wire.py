"""What a homeserver says, as far as we read it (client-server API). Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec
from msgspec import field

MESSAGE: Final = "m.room.message"
STICKER: Final = "m.sticker"
MEMBER: Final = "m.room.member"
REDACTION: Final = "m.room.redaction"
ENCRYPTED: Final = "m.room.encrypted"
TYPES: Final = (MESSAGE, STICKER, MEMBER, REDACTION, ENCRYPTED)

MXC: Final = re.compile(r"mxc://([\w.:\[\]-]+)/([\w-]+)", re.ASCII)

KEY: Final = "dev.shoal.key"
"""In the content of a message: what a look-up knows it by. Clients show nothing of it."""


class Answered(msgspec.Struct, frozen=True):
    """Names the event that this one answers."""

    event_id: str = ""


class Relation(msgspec.Struct, frozen=True):
    """`m.relates_to`. In a thread, `is_falling_back` says that it answers nothing in truth."""

    rel_type: str = ""
    event_id: str = ""
    is_falling_back: bool = False
    in_reply_to: Answered | None = field(name="m.in_reply_to", default=None)


class Mentions(msgspec.Struct, frozen=True):
    """`m.mentions`: who is meant."""

    user_ids: tuple[str, ...] = ()


class Info(msgspec.Struct, frozen=True):
    """Of a file, as its sender has it."""

    mimetype: str = ""
    size: int | float | None = None


class Content(msgspec.Struct, frozen=True):
    """What we read of it."""

    msgtype: str = ""
    body: str = ""
    formatted_body: str = ""
    filename: str = ""
    url: str = ""
    geo_uri: str = ""
    membership: str = ""
    redacts: str = ""
    info: Info | None = None
    relates_to: Relation | None = field(name="m.relates_to", default=None)
    mentions: Mentions | None = field(name="m.mentions", default=None)
    new_content: Content | None = field(name="m.new_content", default=None)


class Unsigned(msgspec.Struct, frozen=True):
    """What the homeserver adds."""

    prev_content: Content | None = None


class Event(msgspec.Struct, frozen=True):
    """One of a room. `origin_server_ts` is what the sender's server claims, in ms."""

    type: str
    event_id: str = ""
    sender: str = ""
    origin_server_ts: int = 0
    state_key: str | None = None
    redacts: str = ""
    content: Content = Content()
    unsigned: Unsigned | None = None


class Timeline(msgspec.Struct, frozen=True):
    """What happened in a room; `limited`: there was more before it, behind `prev_batch`."""

    events: tuple[msgspec.Raw, ...] = ()
    limited: bool = False
    prev_batch: str = ""


class Joined(msgspec.Struct, frozen=True):
    """A room that we are in."""

    timeline: Timeline = Timeline()


class InviteState(msgspec.Struct, frozen=True):
    """What we are told of a room that we are not in."""

    events: tuple[msgspec.Raw, ...] = ()


class Invited(msgspec.Struct, frozen=True):
    """A room that we are asked into."""

    invite_state: InviteState = InviteState()


class Rooms(msgspec.Struct, frozen=True):
    """Of one answer to a question for news."""

    join: dict[str, Joined] = {}
    invite: dict[str, Invited] = {}


class Sync(msgspec.Struct, frozen=True):
    """An answer to a question for news."""

    next_batch: str
    rooms: Rooms = Rooms()


class Known(msgspec.Struct, frozen=True):
    """What later events need to know of an earlier one."""

    sender: str
    thread: str | None = None
    answers: str | None = None


class Who(msgspec.Struct, frozen=True):
    """Whose token it is."""

    user_id: str


class Sent(msgspec.Struct, frozen=True):
    """The event that a post became."""

    event_id: str


class Uploaded(msgspec.Struct, frozen=True):
    """Where a file is."""

    content_uri: str


class Profile(msgspec.Struct, frozen=True):
    """What somebody calls themselves."""

    display_name: str | None = None


class Members(msgspec.Struct, frozen=True):
    """Who is in a room."""

    joined: dict[str, Profile] = {}


class Messages(msgspec.Struct, frozen=True):
    """A page of a room, newest first; `end` leads to the next one."""

    chunk: tuple[msgspec.Raw, ...] = ()
    end: str | None = None


class KeyOf(msgspec.Struct, frozen=True):
    """Of a message of ours, what a look-up reads."""

    key: str = field(name=KEY, default="")


class Ours(msgspec.Struct, frozen=True):
    """A message of ours."""

    event_id: str
    content: KeyOf = KeyOf()


_sync: Final = msgspec.json.Decoder(Sync)
_event: Final = msgspec.json.Decoder(Event)


def read_sync(body: bytes) -> Sync:
    """Raises msgspec.DecodeError for what is none."""
    return _sync.decode(body)


def read_events(raw: Sequence[msgspec.Raw]) -> Iterator[Event]:
    """Those of a form that we know: a strange one must not stand in the way of those behind it."""
    for one in raw:
        if (event := read_event(bytes(one))) is not None:
            yield event


def read_event(body: bytes) -> Event | None:
    """None for what is no event of a form that we know."""
    try:
        return _event.decode(body)
    except (msgspec.DecodeError, RecursionError):
        return None
