"""Convert webhook calls into messages (developers.facebook.com/docs/whatsapp/cloud-api/webhooks).
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
"""Note of a place with the id of the person's last message: the typing indicator needs it."""

_PERSON: Final = re.compile(r"[0-9]{5,20}")
_SECONDS: Final = re.compile(r"[0-9]{1,12}")


class TextBody(msgspec.Struct, frozen=True):
    """The body of a text message."""

    body: str = ""


class Media(msgspec.Struct, frozen=True):
    """A file of any kind. Only documents have a name."""

    id: str
    mime_type: str = ""
    caption: str = ""
    filename: str = ""


class ReplyChoice(msgspec.Struct, frozen=True):
    """A pressed button or list row; `id` is the one that we set."""

    id: str = ""
    title: str = ""


class Interactive(msgspec.Struct, frozen=True):
    """A press of a button, or of a row of a list."""

    button_reply: ReplyChoice | None = None
    list_reply: ReplyChoice | None = None


class TemplateButton(msgspec.Struct, frozen=True):
    """A press of a button of a template message."""

    payload: str = ""
    text: str = ""


class Location(msgspec.Struct, frozen=True):
    """A position in degrees; places have a name."""

    latitude: float
    longitude: float
    name: str | None = None
    address: str | None = None


class CardName(msgspec.Struct, frozen=True):
    """The name as the phone shows it."""

    formatted_name: str = ""


class CardPhone(msgspec.Struct, frozen=True):
    """A phone number as it was typed."""

    phone: str = ""


class ContactCard(msgspec.Struct, frozen=True):
    """An entry of the sender's address book."""

    name: CardName = CardName()
    phones: tuple[CardPhone, ...] = ()


class Message(msgspec.Struct, frozen=True):
    """The parts of a message that we read. `timestamp` is in seconds."""

    id: str
    from_: str = field(name="from", default="")
    timestamp: str = ""
    group_id: str | None = None
    text: TextBody | None = None
    image: Media | None = None
    audio: Media | None = None
    video: Media | None = None
    document: Media | None = None
    sticker: Media | None = None
    interactive: Interactive | None = None
    button: TemplateButton | None = None
    location: Location | None = None
    contacts: tuple[ContactCard, ...] = ()


class Profile(msgspec.Struct, frozen=True):
    """A self-chosen name."""

    name: str = ""


class Contact(msgspec.Struct, frozen=True):
    """A person that a call is about."""

    wa_id: str = ""
    profile: Profile = Profile()


class StatusError(msgspec.Struct, frozen=True):
    """An error, by its number."""

    code: int = 0


class DeliveryStatus(msgspec.Struct, frozen=True):
    """The state of a message of ours: sent, delivered, read or failed."""

    status: str = ""
    recipient_id: str = ""
    errors: tuple[StatusError, ...] = ()


class Metadata(msgspec.Struct, frozen=True):
    """The number of the app that a change is about."""

    phone_number_id: str = ""


class Value(msgspec.Struct, frozen=True):
    """The content of a change. Messages and statuses are decoded one by one, so that a strange one
    does not block the others."""

    metadata: Metadata = Metadata()
    contacts: tuple[Contact, ...] = ()
    messages: tuple[Raw, ...] = ()
    statuses: tuple[Raw, ...] = ()


class Change(msgspec.Struct, frozen=True):
    """A change; `value` has its own form for each field."""

    field: str
    value: Raw


class Entry(msgspec.Struct, frozen=True):
    """The changes of one account."""

    changes: tuple[Change, ...] = ()


class WebhookCall(msgspec.Struct, frozen=True):
    """A call of the webhook."""

    object: str
    entry: tuple[Entry, ...] = ()


class FailedMessage(msgspec.Struct, frozen=True):
    """A message of ours that WhatsApp accepted and then did not deliver. `chat` is '' if it is not
    given."""

    chat: str
    code: int


class ParsedCall(msgspec.Struct, frozen=True):
    """The content of a call, in order. `unreadable_parts` counts the parts in an unknown form."""

    messages: tuple[PlatformMessage, ...] = ()
    failed: tuple[FailedMessage, ...] = ()
    unreadable_parts: int = 0


_call: Final = msgspec.json.Decoder(WebhookCall)
_value: Final = msgspec.json.Decoder(Value)
_message: Final = msgspec.json.Decoder(Message)
_status: Final = msgspec.json.Decoder(DeliveryStatus)


def read_call(channel: str, body: bytes, phone_number_id: str) -> ParsedCall:
    """Decode what a call holds for this number. Raises msgspec.DecodeError."""
    messages, failed, strange = list[PlatformMessage](), list[FailedMessage](), 0
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
                found = parse_message(channel, _message.decode(raw), names)
            except msgspec.DecodeError:
                strange += 1
                continue
            if found is not None:
                messages.append(found)
        for raw in value.statuses:
            try:
                failed += _parse_failure(_status.decode(raw))
            except msgspec.DecodeError:
                strange += 1
    return ParsedCall(tuple(messages), tuple(failed), strange)


def parse_message(channel: str, message: Message, names: Mapping[str, str]) -> PlatformMessage | None:
    """Return the message; None if there is none for us: a reaction, an order, a changed number,
    types WhatsApp itself calls unsupported, and everything in groups, where a sender's id is not a
    chat."""
    if message.group_id is not None or not message.id or not _PERSON.fullmatch(message.from_):
        return None
    text, files = _message_text(message), tuple(_message_files(message))
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


def _message_text(message: Message) -> str:
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
        found = "\n".join(map(_contact_text, message.contacts))
    else:
        captioned = message.image or message.video or message.document
        found = captioned.caption if captioned is not None else ""
    return found.strip()


def _contact_text(card: ContactCard) -> str:
    shown = ", ".join(filter(None, [card.name.formatted_name, *(phone.phone for phone in card.phones)]))
    return f"[contact: {shown}]"


def _message_files(message: Message) -> Iterator[RemoteFile]:
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
            yield RemoteFile(handle=one.id, name=one.filename or name, media_type=mime_type or media_type)


def _parse_failure(status: DeliveryStatus) -> Iterator[FailedMessage]:
    if status.status == "failed":
        known = _PERSON.fullmatch(status.recipient_id)
        yield FailedMessage(status.recipient_id if known else "", status.errors[0].code if status.errors else 0)
