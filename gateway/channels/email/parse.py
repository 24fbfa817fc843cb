"""A mail as a message: who says it, in which thread, what is new in it. Pure; total: any mail gives
a PlatformMessage."""

from __future__ import annotations

import hashlib
import re
from email.utils import parsedate_to_datetime
from typing import Final

import msgspec

from gateway.channels.email.sender import address_of, is_proven
from gateway.channels.email.wire import Attached, Mail, decoded
from gateway.channels.email.words import is_forward, new_words
from gateway.platform.protocol import PlatformMessage, RemoteFile
from shared.messages.inbound import TEXT_LIMIT_BYTES, InboundMessage

SUBJECT: Final = "subject"
ANSWERS: Final = "answers"
REFERENCES: Final = "references"
"""Notes of a place: what its next mail is about, which one it answers, and those before."""

REFERENCES_KEPT: Final = 10
SUBJECT_CHARS: Final = 200
TEXT_BYTES: Final = TEXT_LIMIT_BYTES - 2048
"""Of a mail's words, what is read."""

TOO_LONG: Final = "[The mail is longer than I can read; the rest is missing here.]"
NOBODY: Final = "unknown"

_MESSAGE_ID: Final = re.compile(r"<([^<>\s]{1,250})>")
_PLAIN_ID: Final = re.compile(r"[!-9;-~]+@[!-9;-~]+")
_OURS: Final = re.compile(r"[0-9a-f]{32}\.([0-9a-f]{16})")
_ADDRESS: Final = re.compile(r"<[^<>]*>|\([^()]*\)")
_BULK: Final = ("bulk", "list", "junk", "auto_reply")
_ROBOTS: Final = re.compile(r"(?:mailer-daemon|no-?reply|do-?not-?reply|bounces?)(?:[+-].*)?", re.IGNORECASE)
_MARKS: Final = ("list-id", "x-autoreply", "x-autorespond")


class Ourselves(msgspec.Struct, frozen=True):
    """Our address, and which server's word on senders counts; '' = a From is believed as it
    stands."""

    address: str
    authserv_id: str = ""

    @property
    def domain(self) -> str:
        return self.address.rpartition("@")[2]


def heard(channel: str, mail: Mail, raw_digest: str, us: Ourselves, *, now_ms: int) -> PlatformMessage:
    """What was said. A sender who cannot be believed is nobody: such a mail is heard by nobody.
    `raw_digest` names a mail without a Message-ID."""
    address = address_of(mail.all("from"))
    believed = address if address is not None and _is_believed(mail, address, us) else ""
    subject = decoded(mail.first("subject"))[:SUBJECT_CHARS]
    ids = _ids(mail.first("message-id"))[:1]
    before = references(mail)
    text = new_words(mail.text, answers=bool(before), forwards=is_forward(subject))
    id = _id(ids[0] if ids else "", raw_digest)
    return PlatformMessage(
        message=InboundMessage(
            channel=channel,
            chat_id=address or NOBODY,
            sender_id=believed,
            id=id,
            content=_content(text, subject, opens=not before or is_forward(subject)),
            timestamp=_sent_at(mail.first("date"), now_ms),
            thread=thread_of(before, ids[0] if ids else id, us.domain),
        ),
        own=address == us.address,
        from_bot=is_automatic(mail, address or ""),
        name=_name(mail.first("from")),
        files=tuple(_file(id, number, file) for number, file in enumerate(mail.files)),
        notes=_notes(subject, before, ids),
    )


def references(mail: Mail) -> tuple[str, ...]:
    """Message-IDs of the mails before it, the first one of the thread first."""
    found = [one for header in mail.all("references")[:1] for one in _ids(header)]
    found += [one for one in _ids(mail.first("in-reply-to"))[:1] if one not in found]
    return tuple(found)


def thread_of(before: tuple[str, ...], id: str, domain: str) -> str:
    """The name of a thread: that of a mail of ours which it answers, else of the mail that began
    it."""
    for one in reversed(before):
        local, _, of = one.rpartition("@")
        if of.lower() == domain and (ours := _OURS.fullmatch(local)):
            return ours[1]
    return hashlib.sha256((before[0] if before else id).encode("utf-8", "replace")).hexdigest()[:16]


def is_automatic(mail: Mail, address: str) -> bool:
    """Whether a program wrote it, or it went to many: an answer could begin a loop (RFC 3834)."""
    submitted = mail.first("auto-submitted").partition(";")[0].strip().lower()
    if submitted not in ("", "no"):
        return True
    if any(one.strip() == "<>" for one in mail.all("return-path")):
        return True
    if mail.first("precedence").strip().lower() in _BULK or any(mail.all(one) for one in _MARKS):
        return True
    if mail.first("content-type").lower().startswith("multipart/report"):
        return True
    return _ROBOTS.fullmatch(address.partition("@")[0]) is not None


def _is_believed(mail: Mail, address: str, us: Ourselves) -> bool:
    return not us.authserv_id or is_proven(mail.all("authentication-results"), us.authserv_id, address)


def _content(text: str, subject: str, *, opens: bool) -> str:
    """With its subject, where that is new. A command stands alone."""
    if opens and subject and not text.lstrip().startswith("/"):
        text = f"Subject: {subject}\n\n{text}".strip()
    data = text.encode("utf-8", "replace")
    if len(data) <= TEXT_BYTES:
        return data.decode()
    return f"{data[:TEXT_BYTES].decode('utf-8', 'ignore').rstrip()}\n\n{TOO_LONG}"


def _notes(subject: str, before: tuple[str, ...], ids: list[str]) -> dict[str, str]:
    kept = [*before, *ids]
    if len(kept) > REFERENCES_KEPT:
        kept = [kept[0], *kept[1 - REFERENCES_KEPT :]]
    notes = {SUBJECT: subject, REFERENCES: " ".join(one for one in kept if one.isascii())}
    return notes | ({ANSWERS: ids[0]} if ids and ids[0].isascii() else {})


def _ids(header: str) -> list[str]:
    return _MESSAGE_ID.findall(header)


def _id(message_id: str, raw_digest: str) -> str:
    """A Message-ID of a usual form as it is; of any other, or for none, one that is as good. It has
    no colon: ids with one are Shoal's own."""
    if _PLAIN_ID.fullmatch(message_id):
        return message_id
    return hashlib.sha256(message_id.encode("utf-8", "replace")).hexdigest() if message_id else raw_digest


def _sent_at(date: str, now_ms: int) -> int:
    """What the sender's clock said, unless that is beyond belief; in ms."""
    try:
        sent = int(parsedate_to_datetime(date).timestamp() * 1000)
    except Exception:  # the email package raises many things over broken dates
        return now_ms
    return sent if 0 < sent <= now_ms else now_ms


def _name(value: str) -> str:
    return decoded(_ADDRESS.sub(" ", value)).replace('"', "").strip()


def _file(id: str, number: int, file: Attached) -> RemoteFile:
    """A file that was cut off has the size of no file, so that it is refused."""
    size = len(file.data) if file.whole else 2**62
    return RemoteFile(
        handle=f"{id}/{number}",
        name=file.name,
        media_type=file.media_type if file.media_type.isascii() else "",
        size_bytes=size,
    )
