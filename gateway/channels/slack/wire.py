"""Verify and decode what Slack sends an app: webhook calls and Socket Mode envelopes. Pure.

Both carry the same three things: an event (docs.slack.dev/apis/events-api), a pressed button
(reference/interaction-payloads/block_actions-payload), a slash command
(interactivity/implementing-slash-commands).
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, TypeVar
from urllib.parse import parse_qsl

import msgspec
from msgspec import Raw, Struct

from gateway.platform.nulls import convert, decode_json

FORM: Final = "application/x-www-form-urlencoded"
MESSAGES: Final = ("message", "app_mention")
CHALLENGE_CHARS: Final = 1000
SIGNATURE: Final = "x-slack-signature"
SIGNED_AT: Final = "x-slack-request-timestamp"
OLD_S: Final = 300  # a call signed longer ago, or this far in the future, is treated as a replay
_SECONDS: Final = re.compile(r"[0-9]{1,12}")
_NULL: Final = Raw(b"null")

T = TypeVar("T")


class UnreadablePayload(ValueError):
    """A payload in none of the forms of Slack that we know."""


class SlackIdentity(Struct, frozen=True):
    """The bot's ids and the workspace it is in."""

    team_id: str
    user_id: str
    bot_id: str
    name: str = ""


class Edited(Struct, frozen=True):
    """Time of a message's last edit."""

    ts: str = ""


class Message(Struct, frozen=True):
    """A message event, or a message inside one. `ts` is its id in the channel and its time.
    `message` and `previous_message` belong to a change, `deleted_ts` to a deletion."""

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
    blocks: Any = None
    username: str | None = None  # of a bot


class Attachment(Struct, frozen=True):
    """An attachment of a message; with `is_share` it is a forwarded message."""

    is_share: bool = False
    from_url: str | None = None  # it previews a link
    text: str | None = None
    fallback: str | None = None
    author_name: str | None = None
    pretext: str | None = None
    title: str | None = None
    footer: str | None = None
    fields: Any = None
    files: Any = None
    blocks: Any = None
    message_blocks: Any = None


class SlackFile(Struct, frozen=True):
    """A file of a message. `mode` is hosted, snippet, external, tombstone …"""

    id: str
    name: str | None = None
    title: str | None = None
    mimetype: str | None = None
    size: int | None = None
    mode: str | None = None
    url_private: str | None = None
    url_private_download: str | None = None


class _Authorization(Struct, frozen=True):
    team_id: str | None = None
    user_id: str | None = None


class EventCallback(Struct, frozen=True):
    """An event about a message, with the workspace it belongs to."""

    event: Message
    team_id: str
    event_id: str
    authorizations: tuple[_Authorization, ...]


class _Place(Struct, frozen=True):
    id: str = ""


class _User(Struct, frozen=True):
    id: str = ""
    name: str | None = None  # self-chosen
    username: str | None = None
    team_id: str | None = None


class _Container(Struct, frozen=True):
    message_ts: str | None = None
    channel_id: str | None = None
    thread_ts: str | None = None


class _Action(Struct, frozen=True):
    type: str = ""
    block_id: str | None = None
    value: str | None = None
    action_ts: str | None = None


class BlockActions(Struct, frozen=True):
    """A person pressed a button (block_actions)."""

    user: _User
    actions: tuple[_Action, ...]
    type: str = ""
    team: _Place | None = None
    channel: _Place | None = None
    container: _Container = _Container()
    message: Message | None = None


class SlashCommand(Struct, frozen=True):
    """A slash command."""

    command: str
    team_id: str
    channel_id: str
    user_id: str
    trigger_id: str
    text: str = ""
    user_name: str = ""


class UrlVerification(Struct, frozen=True):
    """The check of a new webhook: Slack expects this word back."""

    word: str


SlackEvent = EventCallback | BlockActions | SlashCommand | UrlVerification
"""Everything that may be addressed to us."""


class Envelope(Struct, frozen=True):
    """A Socket Mode frame: `hello`, `disconnect` with `reason`, or a payload to acknowledge."""

    type: str = ""
    envelope_id: str = ""
    reason: str = ""
    payload: Raw = _NULL


class _Outer(Struct, frozen=True):
    type: str = ""
    challenge: str = ""
    team_id: str | None = None
    event_id: str | None = None
    authorizations: tuple[_Authorization, ...] | None = None
    event: Raw = _NULL


class _Kind(Struct, frozen=True):
    type: str = ""


def is_signed(secret: str, headers: Mapping[str, str], body: bytes, *, now_s: float) -> bool:
    """Return whether this body was signed with the secret within the last five minutes. Header
    names are in lower case (docs.slack.dev/authentication/verifying-requests-from-slack)."""
    at = headers.get(SIGNED_AT, "")
    given = headers.get(SIGNATURE, "")
    if not _SECONDS.fullmatch(at) or abs(now_s - int(at)) > OLD_S:
        return False
    # Constant time, so that a forger learns nothing from how long a refusal takes.
    return hmac.compare_digest(given.encode(), signature(secret, at, body).encode())


def signature(secret: str, at: str, body: bytes) -> str:
    """Return the signature header for a body; `at` is the time in seconds."""
    signed = b"v0:" + at.encode() + b":" + body
    return "v0=" + hmac.new(secret.encode(), signed, hashlib.sha256).hexdigest()


def read_call(media_type: str, body: bytes) -> SlackEvent | None:
    """Decode a signed webhook call; None if it is nothing for us. Raises UnreadablePayload."""
    if media_type.partition(";")[0].strip().lower() != FORM:
        return _decode_event(body)
    try:
        fields = dict(parse_qsl(body.decode(), keep_blank_values=True))
    except ValueError as exc:
        raise UnreadablePayload("this form cannot be read") from exc
    if "payload" in fields:
        return _decode_press(fields["payload"].encode())
    if "command" in fields:
        return _read(partial(convert, fields), SlashCommand)
    if "ssl_check" in fields:
        return None
    raise UnreadablePayload("this form is neither a slash command nor an interaction")


def read_envelope(frame: str) -> Envelope:
    """Decode a Socket Mode frame. Raises UnreadablePayload."""
    return _decode(frame.encode(), Envelope)


def read_payload(envelope: Envelope) -> SlackEvent | None:
    """Decode the payload of an envelope; None if it is nothing for us. Raises UnreadablePayload."""
    match envelope.type:
        case "events_api":
            return _decode_event(bytes(envelope.payload))
        case "interactive":
            return _decode_press(bytes(envelope.payload))
        case "slash_commands":
            return _decode(bytes(envelope.payload), SlashCommand)
        case _:
            return None


def files_in(message: Message | Attachment) -> list[SlackFile]:
    """Return the files of a message that can be decoded."""
    return _convert_each(message.files, SlackFile)


def attachments_in(message: Message) -> list[Attachment]:
    """Return the attachments that can be decoded."""
    return _convert_each(message.attachments, Attachment)


def read_message(found: Any) -> Message | None:
    """Return a message that was looked up; None if it has an unknown form."""
    return next(iter(_convert_each([found], Message)), None)


def _decode_event(body: bytes) -> SlackEvent | None:
    outer = _decode(body, _Outer)
    if outer.type == "url_verification":
        return UrlVerification(outer.challenge[:CHALLENGE_CHARS])
    if outer.type != "event_callback" or _decode(bytes(outer.event), _Kind).type not in MESSAGES:
        return None
    event = _decode(bytes(outer.event), Message)
    return EventCallback(event, outer.team_id or "", outer.event_id or "", outer.authorizations or ())


def _decode_press(body: bytes) -> BlockActions | None:
    return _decode(body, BlockActions) if _decode(body, _Kind).type == "block_actions" else None


def _decode(body: bytes, kind: type[T]) -> T:
    return _read(partial(decode_json, body), kind)


def _read(read: Callable[[type[T]], T], kind: type[T]) -> T:
    try:
        return read(kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as exc:
        name = kind.__name__.strip("_").lower()
        raise UnreadablePayload(f"this is no {name} of Slack's") from exc


def _convert_each(given: Any, kind: type[T]) -> list[T]:
    """Return the items that can be decoded: a strange one must not cost the whole message."""
    found = []
    for one in given if isinstance(given, list) else ():
        try:
            found.append(convert(one, kind))
        except msgspec.ValidationError:
            continue
    return found
