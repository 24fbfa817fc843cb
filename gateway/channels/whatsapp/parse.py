"""Calls of the webhook as messages (developers.facebook.com/docs/whatsapp/cloud-api/webhooks).
Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

import msgspec
from msgspec import Raw, field

from gateway.platform.protocol import PlatformMessage, RemoteFile
from shared.messages.inbound import InboundMessage

LAST_MESSAGE: Final = "message"
"""The note of a place that has the id of what the person said last: "is typing" needs it."""

_PERSON: Final = re.compile(r"[0-9]{5,20}")
_SECONDS: Final = re.compile(r"[0-9]{1,12}")


class Text(msgspec.Struct, frozen=True):
    """Of a message of type text."""

    body: str = ""


class Media(msgspec.Struct, frozen=True):
    """A file of any kind. Only documents have a name."""

    id: str
    mime_type: str = ""
    caption: str = ""
    filename: str = ""


class Choice(msgspec.Struct, frozen=True):
    """What was pressed; `id` is what we put there."""

    id: str = ""
    title: str = ""


class Interactive(msgspec.Struct, frozen=True):
    """A press of a button, or of a row of a list."""

    button_reply: Choice | None = None
    list_reply: Choice | None = None


class TemplateButton(msgspec.Struct, frozen=True):
    """A press of a button of a template message."""

    payload: str = ""
    text: str = ""


class Location(msgspec.Struct, frozen=True):
    """In degrees; places have a name."""

    latitude: float
    longitude: float
    name: str | None = None
    address: str | None = None


class CardName(msgspec.Struct, frozen=True):
    """As the phone shows it."""

    formatted_name: str = ""


class CardPhone(msgspec.Struct, frozen=True):
    """As somebody wrote it."""

    phone: str = ""


class Card(msgspec.Struct, frozen=True):
    """Of the address book of whoever sent it."""

    name: CardName = CardName()
    phones: tuple[CardPhone, ...] = ()


class Message(msgspec.Struct, frozen=True):
    """What we read of it. `timestamp` in seconds."""

    id: str
    from_: str = field(name="from", default="")
    timestamp: str = ""
    group_id: str | None = None
    text: Text | None = None
    image: Media | None = None
    audio: Media | None = None
    video: Media | None = None
    document: Media | None = None
    sticker: Media | None = None
    interactive: Interactive | None = None
    button: TemplateButton | None = None
    location: Location | None = None
    contacts: tuple[Card, ...] = ()


class Profile(msgspec.Struct, frozen=True):
    """What people call themselves."""

    name: str = ""


class Contact(msgspec.Struct, frozen=True):
    """Somebody that a call is about."""

    wa_id: str = ""
    profile: Profile = Profile()


class Problem(msgspec.Struct, frozen=True):
    """By its number."""

    code: int = 0


class Status(msgspec.Struct, frozen=True):
    """What became of a message of ours: sent, delivered, read or failed."""

    status: str = ""
    recipient_id: str = ""
    errors: tuple[Problem, ...] = ()


class Metadata(msgspec.Struct, frozen=True):
    """Which of the app's numbers it is about."""

    phone_number_id: str = ""


class Value(msgspec.Struct, frozen=True):
    """Messages and statuses are read one by one: a strange one stands in nobody's way."""

    metadata: Metadata = Metadata()
    contacts: tuple[Contact, ...] = ()
    messages: tuple[Raw, ...] = ()
    statuses: tuple[Raw, ...] = ()


class Change(msgspec.Struct, frozen=True):
    """`value` has a form of its own for each field."""

    field: str
    value: Raw


class Entry(msgspec.Struct, frozen=True):
    """Of one account."""

    changes: tuple[Change, ...] = ()


class Call(msgspec.Struct, frozen=True):
    """A call of the webhook."""

    object: str
    entry: tuple[Entry, ...] = ()


class Failed(msgspec.Struct, frozen=True):
    """A message of ours that WhatsApp took and then did not deliver. `chat` is '' when it is not
    said."""

    chat: str
    code: int


class Told(msgspec.Struct, frozen=True):
    """What a call says, in its order. `strange`: so many parts of it have a form that nobody
    knows."""

    heard: tuple[PlatformMessage, ...] = ()
    failed: tuple[Failed, ...] = ()
    strange: int = 0


_call: Final = msgspec.json.Decoder(Call)
_value: Final = msgspec.json.Decoder(Value)
_message: Final = msgspec.json.Decoder(Message)
_status: Final = msgspec.json.Decoder(Status)


def read_call(channel: str, body: bytes, phone_number_id: str) -> Told:
    """What it says to this number. Raises msgspec.DecodeError for what is no call."""
    heard, failed, strange = list[PlatformMessage](), list[Failed](), 0
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
        names = {one.wa_id: one.profile.name for one in value.contacts}
        for raw in value.messages:
            try:
                found = heard_of(channel, _message.decode(raw), names)
            except msgspec.DecodeError:
                strange += 1
                continue
            if found is not None:
                heard.append(found)
        for raw in value.statuses:
            try:
                failed += _failed(_status.decode(raw))
            except msgspec.DecodeError:
                strange += 1
    return Told(tuple(heard), tuple(failed), strange)


def heard_of(channel: str, message: Message, names: Mapping[str, str]) -> PlatformMessage | None:
    """What was said; None for what says nothing to us: a reaction, an order, a changed number, what
    WhatsApp itself calls unsupported, and everything in groups, where a sender's id is no chat."""
    if message.group_id is not None or not message.id or not _PERSON.fullmatch(message.from_):
        return None
    text, files = _words(message), tuple(_files(message))
    if not text and not files:
        return None
    return PlatformMessage(
        message=InboundMessage(
            channel=channel,
            chat_id=message.from_,
            sender_id=message.from_,
            id=message.id,
            content=text,
            timestamp=int(message.timestamp) * 1000 if _SECONDS.fullmatch(message.timestamp) else 0,
        ),
        name=names.get(message.from_, ""),
        files=files,
        notes={LAST_MESSAGE: message.id},
    )


def _words(message: Message) -> str:
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
        found = f"[location: {message.location.latitude}, {message.location.longitude}{place and f' ({place})'}]"
    elif message.contacts:
        found = "\n".join(map(_card, message.contacts))
    else:
        captioned = message.image or message.video or message.document
        found = captioned.caption if captioned is not None else ""
    return found.strip()


def _card(card: Card) -> str:
    shown = ", ".join(filter(None, [card.name.formatted_name, *(phone.phone for phone in card.phones)]))
    return f"[contact: {shown}]"


def _files(message: Message) -> Iterator[RemoteFile]:
    kinds = (
        (message.image, "photo.jpg", "image/jpeg"),
        (message.video, "video.mp4", "video/mp4"),
        (message.audio, "voice.ogg", "audio/ogg"),
        (message.document, "file", ""),
        (message.sticker, "sticker.webp", "image/webp"),
    )
    for one, name, media_type in kinds:
        if one is not None:
            told = one.mime_type.partition(";")[0].strip()  # such as audio/ogg; codecs=opus
            yield RemoteFile(handle=one.id, name=one.filename or name, media_type=told or media_type)


def _failed(status: Status) -> Iterator[Failed]:
    if status.status == "failed":
        known = _PERSON.fullmatch(status.recipient_id)
        yield Failed(status.recipient_id if known else "", status.errors[0].code if status.errors else 0)
