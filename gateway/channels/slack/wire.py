"""What Slack tells an app, as far as we read it: calls of the webhook and envelopes of Socket Mode.
Pure.

Both carry the same three things: an event (docs.slack.dev/apis/events-api), a pressed button
(reference/ interaction-payloads/block_actions-payload), a slash command
(interactivity/implementing-slash-commands).
"""

from __future__ import annotations

from typing import Any, Final, TypeVar
from urllib.parse import parse_qsl

import msgspec
from msgspec import Raw, Struct, field

FORM: Final = "application/x-www-form-urlencoded"
MESSAGES: Final = ("message", "app_mention")
CHALLENGE_CHARS: Final = 1000


class Unreadable(ValueError):
    """What came has none of Slack's forms that we know."""


class Edited(Struct, frozen=True):
    """When a message was edited last."""

    ts: str = ""


class Message(Struct, frozen=True):
    """An event about a message, or a message inside of one. `ts` is its id in the channel, and its
    time. `message` and `previous_message` are those of a change, `deleted_ts` the one that is
    gone."""

    type: str = ""
    subtype: str | None = None
    channel: str | None = None
    user: str | None = None
    bot_id: str | None = None
    text: str | None = None
    ts: str | None = None
    thread_ts: str | None = None
    parent_user_id: str | None = None
    deleted_ts: str | None = None
    edited: Edited | None = None
    message: Message | None = None
    previous_message: Message | None = None
    files: Any = None
    attachments: Any = None


class Attachment(Struct, frozen=True):
    """What hangs on a message; with `is_share` somebody else's message that was passed on."""

    is_share: bool = False
    text: str | None = None
    fallback: str | None = None
    author_name: str | None = None
    files: Any = None


class FileOf(Struct, frozen=True):
    """A file of a message. `mode` is hosted, snippet, external, tombstone …"""

    id: str
    name: str | None = None
    title: str | None = None
    mimetype: str | None = None
    size: int | None = None
    mode: str | None = None
    url_private: str | None = None
    url_private_download: str | None = None


class Authorization(Struct, frozen=True):
    """An installation of the app that may see an event."""

    team_id: str | None = None
    user_id: str | None = None


class Callback(Struct, frozen=True):
    """An event about a message, and whose it is."""

    event: Message
    team_id: str
    event_id: str
    authorizations: tuple[Authorization, ...]


class Team(Struct, frozen=True):
    """A workspace."""

    id: str = ""


class Person(Struct, frozen=True):
    """Who pressed. `name` is what they call themselves."""

    id: str = ""
    name: str | None = None
    username: str | None = None
    team_id: str | None = None


class Channel(Struct, frozen=True):
    """Where it was pressed."""

    id: str = ""


class Container(Struct, frozen=True):
    """The message that the button is on."""

    message_ts: str | None = None
    channel_id: str | None = None
    thread_ts: str | None = None


class Action(Struct, frozen=True):
    """A button that was pressed."""

    type: str = ""
    block_id: str | None = None
    value: str | None = None
    action_ts: str | None = None


class Press(Struct, frozen=True):
    """Somebody pressed a button (block_actions)."""

    user: Person
    actions: tuple[Action, ...]
    type: str = ""
    team: Team | None = None
    channel: Channel | None = None
    container: Container = Container()
    message: Message | None = None


class Command(Struct, frozen=True):
    """A slash command."""

    command: str
    team_id: str
    channel_id: str
    user_id: str
    trigger_id: str
    text: str = ""
    user_name: str = ""


class Challenge(Struct, frozen=True):
    """Slack checks a new webhook: it wants to read this word."""

    word: str


Told = Callback | Press | Command | Challenge
"""What may be meant for us."""


class Envelope(Struct, frozen=True):
    """A frame of Socket Mode: `hello`, `disconnect` with its `reason`, or something with an
    `envelope_id` that is to be confirmed."""

    type: str = ""
    envelope_id: str = ""
    reason: str = ""
    payload: Raw = field(default_factory=lambda: Raw(b"null"))


class _Outer(Struct, frozen=True):
    type: str = ""
    challenge: str = ""
    team_id: str | None = None
    event_id: str | None = None
    authorizations: tuple[Authorization, ...] | None = None
    event: Raw = field(default_factory=lambda: Raw(b"null"))


class _Kind(Struct, frozen=True):
    type: str = ""


def read_call(media_type: str, body: bytes) -> Told | None:
    """A signed call of the webhook; None for what says nothing to us. Raises Unreadable."""
    if media_type.partition(";")[0].strip().lower() != FORM:
        return _event(body)
    try:
        fields = dict(parse_qsl(body.decode(), keep_blank_values=True))
    except ValueError as exc:
        raise Unreadable("this form cannot be read") from exc
    if "payload" in fields:
        return _press(fields["payload"].encode())
    if "command" in fields:
        return _as(fields, Command)
    if "ssl_check" in fields:
        return None
    raise Unreadable("this form is neither a slash command nor an interaction")


def read_envelope(frame: str) -> Envelope:
    """A frame of Socket Mode. Raises Unreadable."""
    return _decoded(frame.encode(), Envelope)


def told_in(envelope: Envelope) -> Told | None:
    """What an envelope brings; None for what says nothing to us. Raises Unreadable."""
    match envelope.type:
        case "events_api":
            return _event(bytes(envelope.payload))
        case "interactive":
            return _press(bytes(envelope.payload))
        case "slash_commands":
            return _decoded(bytes(envelope.payload), Command)
        case _:
            return None


def files_in(message: Message | Attachment) -> list[FileOf]:
    """The files of a message that can be understood."""
    return _each(message.files, FileOf)


def attachments_in(message: Message) -> list[Attachment]:
    """What hangs on a message, as far as it can be understood."""
    return _each(message.attachments, Attachment)


def _event(body: bytes) -> Told | None:
    outer = _decoded(body, _Outer)
    if outer.type == "url_verification":
        return Challenge(outer.challenge[:CHALLENGE_CHARS])
    if outer.type != "event_callback" or _decoded(bytes(outer.event), _Kind).type not in MESSAGES:
        return None
    event = _decoded(bytes(outer.event), Message)
    return Callback(event, outer.team_id or "", outer.event_id or "", outer.authorizations or ())


def _press(body: bytes) -> Press | None:
    if _decoded(body, _Kind).type != "block_actions":
        return None
    return _decoded(body, Press)


T = TypeVar("T")


def _decoded(body: bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as exc:
        raise Unreadable(f"this is no {kind.__name__.strip('_').lower()} of Slack's") from exc


def _as(given: Any, kind: type[T]) -> T:
    try:
        return msgspec.convert(given, kind)
    except msgspec.ValidationError as exc:
        raise Unreadable(f"this is no {kind.__name__.lower()} of Slack's") from exc


def _each(given: Any, kind: type[T]) -> list[T]:
    """Those that can be understood: a strange one does not cost the message."""
    found = []
    for one in given if isinstance(given, list) else ():
        try:
            found.append(msgspec.convert(one, kind))
        except msgspec.ValidationError:
            continue
    return found
