"""Convert calls into messages (developers.facebook.com/docs/whatsapp/cloud-api/webhooks). Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import msgspec
from msgspec import Raw, Struct, field

from gateway.platform.nulls import NullTolerantDecoder
from gateway.platform.protocol import PlatformMessage, RemoteFile
from shared.messages.inbound import InboundMessage

LAST_MESSAGE: Final = "message"
"""Note of a place with the id of the person's last message: the typing indicator needs it."""

NUMBER: Final = re.compile(r"[0-9]{5,20}")
USER_ID: Final = re.compile(r"[A-Z]{2}\.(?:ENT\.)?[0-9A-Za-z]{1,128}")
"""A person is known by a number, or by an id of their own if they hide it behind a user name."""

_UNSUPPORTED: Final = ("unsupported", "unknown")
_SECONDS: Final = re.compile(r"[0-9]{1,12}")


class _TextBody(Struct, frozen=True):
    body: str = ""


class _Media(Struct, frozen=True):  # of any kind; only documents have a name
    id: str
    mime_type: str = ""
    caption: str = ""
    filename: str = ""


class _Choice(Struct, frozen=True):  # a pressed button or list row; the id is ours
    id: str = ""
    title: str = ""


class _Interactive(Struct, frozen=True):
    button_reply: _Choice | None = None
    list_reply: _Choice | None = None


class _TemplateButton(Struct, frozen=True):
    payload: str = ""
    text: str = ""


class _Location(Struct, frozen=True):  # in degrees; places have a name
    latitude: float
    longitude: float
    name: str | None = None
    address: str | None = None


class _CardName(Struct, frozen=True):
    formatted_name: str = ""


class _CardPhone(Struct, frozen=True):
    phone: str = ""


class _ContactCard(Struct, frozen=True):
    name: _CardName = _CardName()
    phones: tuple[_CardPhone, ...] = ()


class _MessageContext(Struct, frozen=True):
    forwarded: bool = False
    frequently_forwarded: bool = False


class _Message(Struct, frozen=True):
    id: str
    from_: str = field(name="from", default="")
    from_user_id: str = ""
    type: str = ""
    timestamp: str = ""  # in seconds
    group_id: str | None = None
    text: _TextBody | None = None
    image: _Media | None = None
    audio: _Media | None = None
    video: _Media | None = None
    document: _Media | None = None
    sticker: _Media | None = None
    interactive: _Interactive | None = None
    button: _TemplateButton | None = None
    location: _Location | None = None
    contacts: tuple[_ContactCard, ...] = ()
    context: _MessageContext | None = None


class _Profile(Struct, frozen=True):
    name: str = ""
    username: str = ""


class _Contact(Struct, frozen=True):
    wa_id: str = ""
    user_id: str = ""
    profile: _Profile = _Profile()


class _StatusError(Struct, frozen=True):
    code: int = 0


class _Status(Struct, frozen=True):  # of a message of ours: sent, delivered, read or failed
    status: str = ""
    recipient_id: str = ""
    recipient_user_id: str = ""
    errors: tuple[_StatusError, ...] = ()


class _PhoneMetadata(Struct, frozen=True):
    phone_number_id: str = ""


class _Value(Struct, frozen=True):
    # Messages and statuses are decoded one by one, so that a strange one does not block the others.
    metadata: _PhoneMetadata = _PhoneMetadata()
    contacts: tuple[_Contact, ...] = ()
    messages: tuple[Raw, ...] = ()
    statuses: tuple[Raw, ...] = ()


class _Change(Struct, frozen=True):
    field: str
    value: Raw  # of its own form for each field


class _Entry(Struct, frozen=True):
    changes: tuple[_Change, ...] = ()


class _WebhookCall(Struct, frozen=True):
    object: str
    entry: tuple[_Entry, ...] = ()


class FailedMessage(Struct, frozen=True):
    """A message of ours that was accepted and then not delivered. `chat` is '' if not given."""

    chat: str
    code: int


class ParsedCall(Struct, frozen=True):
    """The content of a call, in order. `unreadable_parts` counts the parts in an unknown form."""

    messages: tuple[PlatformMessage, ...] = ()
    failed: tuple[FailedMessage, ...] = ()
    unreadable_parts: int = 0


_call: Final = NullTolerantDecoder(_WebhookCall)
_value: Final = NullTolerantDecoder(_Value)
_message: Final = NullTolerantDecoder(_Message)
_status: Final = NullTolerantDecoder(_Status)


def read_call(channel: str, body: bytes, phone_number_id: str) -> ParsedCall:
    """Decode what a call holds for this number. Raises msgspec.DecodeError."""
    messages = list[PlatformMessage]()
    failed = list[FailedMessage]()
    strange = 0
    for change in (change for entry in _call.decode(body).entry for change in entry.changes):
        if change.field != "messages":
            continue
        try:
            value = _value.decode(change.value)
        except msgspec.DecodeError:
            strange += 1
            continue
        if value.metadata.phone_number_id != phone_number_id:
            continue
        names = _names(value.contacts)
        for raw in value.messages:
            try:
                found = _parse_message(channel, _message.decode(raw), names)
            except msgspec.DecodeError:
                strange += 1
                continue
            if found is not None:
                messages.append(found)
        for raw in value.statuses:
            try:
                status = _status.decode(raw)
            except msgspec.DecodeError:
                strange += 1
                continue
            if status.status == "failed":
                chat = _person(status.recipient_id, status.recipient_user_id)
                failed.append(FailedMessage(chat, status.errors[0].code if status.errors else 0))
    return ParsedCall(tuple(messages), tuple(failed), strange)


def _parse_message(channel: str, message: _Message, names: Mapping[str, str]) -> PlatformMessage | None:
    """Return the message; None if there is none for us: a reaction, an order, a changed number, and
    everything in groups, where a sender's id is not a chat. Raises DecodeError for one that
    WhatsApp does not pass on, and for one of nobody."""
    if message.group_id is not None or message.type == "system":
        return None
    person = _person(message.from_, message.from_user_id)
    if message.type in _UNSUPPORTED or not message.id or not person:
        raise msgspec.ValidationError("no content, or nobody to answer")
    text = _message_text(message)
    files = tuple(_message_files(message))
    if not text and not files:
        return None
    return PlatformMessage(
        message=InboundMessage(
            channel=channel,
            chat_id=person,
            sender_id=person,
            id=message.id,
            content=text,
            timestamp=int(message.timestamp) * 1000 if _SECONDS.fullmatch(message.timestamp) else 0,
        ),
        forwarded=_has_words_of_others(message),
        name=names.get(message.from_) or names.get(message.from_user_id, ""),
        files=files,
        notes={LAST_MESSAGE: message.id},
    )


def _person(number: str, user_id: str) -> str:
    """Return the id of a person: their number if it is there, for the chats of before have it."""
    return next((id for id in (number, user_id) if NUMBER.fullmatch(id) or USER_ID.fullmatch(id)), "")


def _names(contacts: Iterable[_Contact]) -> dict[str, str]:
    """Return the names that people gave themselves, by number and by user id."""
    known = {id: one.profile.name or one.profile.username for one in contacts for id in (one.wa_id, one.user_id)}
    return {id: name for id, name in known.items() if id}


def _has_words_of_others(message: _Message) -> bool:
    """Return whether it was forwarded, or names a contact or a place: they named themselves."""
    context = message.context
    place = message.location
    if context is not None and (context.forwarded or context.frequently_forwarded):
        return True
    return bool(message.contacts) or (place is not None and bool(place.name or place.address))


def _message_text(message: _Message) -> str:
    found = ""
    if message.text is not None:
        found = message.text.body
    elif message.interactive is not None:
        pressed = message.interactive.button_reply or message.interactive.list_reply
        found = pressed.id or pressed.title if pressed is not None else ""
    elif message.button is not None:
        found = message.button.payload or message.button.text
    elif message.location is not None:
        place = ", ".join(filter(None, [message.location.name, message.location.address]))
        found = f"{message.location.latitude}, {message.location.longitude}"
        found = f"[location: {found}{place and f' ({place})'}]"
    elif message.contacts:
        cards = [[card.name.formatted_name, *(phone.phone for phone in card.phones)] for card in message.contacts]
        found = "\n".join(f"[contact: {', '.join(filter(None, card))}]" for card in cards)
    else:
        captioned = message.image or message.video or message.document
        found = captioned.caption if captioned is not None else ""
    return found.strip()


def _message_files(message: _Message) -> Iterator[RemoteFile]:
    kinds = (
        (message.image, "photo.jpg", "image/jpeg"),
        (message.video, "video.mp4", "video/mp4"),
        (message.audio, "voice.ogg", "audio/ogg"),
        (message.document, "file", ""),
        (message.sticker, "sticker.webp", "image/webp"),
    )
    for one, name, media_type in kinds:
        if one is not None:
            mime_type = one.mime_type.partition(";")[0].strip()  # such as audio/ogg; codecs=opus
            media_type = mime_type or media_type
            yield RemoteFile(handle=one.id, name=one.filename or name, media_type=media_type)
