"""Convert a mail into a message: its sender, its thread, and the new part of its text. Pure; total:
every mail gives a message."""

from __future__ import annotations

import hashlib
import re
from email.utils import parsedate_to_datetime
from typing import Final

import msgspec

from gateway.channels.email.sender import address_of, is_proven
from gateway.channels.email.wire import RESULTS, Mail, MailFile, decode_header_text
from gateway.platform.protocol import PlatformMessage, RemoteFile
from gateway.text.incoming import strip_quoted
from shared.messages.inbound import TEXT_LIMIT_BYTES, InboundMessage
from shared.messages.sources import source_label

SUBJECT: Final = "subject"
ANSWERS: Final = "answers"
REFERENCES: Final = "references"
"""Notes of a place: the subject of its next mail, the mail it answers, and the earlier ones."""

REFERENCES_KEPT: Final = 10
SUBJECT_CHARS: Final = 200
TEXT_BYTES: Final = TEXT_LIMIT_BYTES - 2048
"""Limit for the text that is read of a mail."""

TOO_LONG: Final = "[The mail is longer than I can read; the rest is missing here.]"
NOBODY: Final = "unknown"

_MESSAGE_ID: Final = re.compile(r"<([^<>\s]{1,250})>")
_PLAIN_ID: Final = re.compile(r"[!-9;-~]+@[!-9;-~]+")
_OURS: Final = re.compile(r"[0-9a-f]{32}\.([0-9a-f]{16})")
_ADDRESS: Final = re.compile(r"<[^<>]*>|\([^()]*\)")
_BULK: Final = ("bulk", "list", "junk", "auto_reply")
_ROBOTS: Final = re.compile(r"(?:mailer-daemon|no-?reply|do-?not-?reply|bounces?)(?:[+-].*)?", re.IGNORECASE)
_MARKS: Final = ("list-id", "x-autoreply", "x-autorespond")
_FORWARDS: Final = re.compile(r"\s*(?:fwd?|wg|tr|rv|enc|i|vs|doorst|pd|vl|перешл)\s*:", re.IGNORECASE)
_FORWARDED: Final = re.compile(
    r"^(?:-{3,}\s*(?:Forwarded message|Weitergeleitete Nachricht|Message transféré|Mensaje reenviado|"
    r"Messaggio inoltrato|Doorgestuurd bericht)\s*-{3,}|Begin forwarded message:|Anfang der weitergeleiteten .*:)\s*$",
    re.IGNORECASE | re.MULTILINE,
)
_FROM: Final = re.compile(r"\*?(?:From|Von|De|Da|Van|Od|Från|Fra|От|发件人|差出人)\s*:\*?\s*\S", re.IGNORECASE)
_SENT: Final = re.compile(
    r"\*?(?:Sent|Date|Gesendet|Datum|Envoyé|Enviado( el)?|Inviato|Data|Verzonden|Wysłano|Skickat|Sendt|Дата|"
    r"Отправлено|发送时间|送信日時)\s*:\*?\s*\S",
    re.IGNORECASE,
)
_SUBJECT: Final = re.compile(
    r"\*?(?:Subject|Betreff|Objet|Asunto|Oggetto|Assunto|Onderwerp|Temat|Ämne|Emne|Тема|主题|件名)\s*:", re.IGNORECASE
)
_RULE: Final = re.compile(r"\s*(?:[_-]{5,}|-{2,}\s*[^-\n]{1,40}?\s*-{2,})?\s*")
_SIGNATURE_LINES: Final = 15
_HEAD_LINES: Final = 8


class EmailIdentity(msgspec.Struct, frozen=True):
    """Our address, and the server whose Authentication-Results count; '' = all are trusted."""

    address: str
    authserv_id: str = ""


def parse_mail(channel: str, mail: Mail, raw_digest: str, us: EmailIdentity, *, now_ms: int) -> PlatformMessage:
    """Return the message of a mail. A sender that cannot be verified becomes empty, and access
    control ignores it. `raw_digest` identifies a mail without a Message-ID."""
    address = address_of(mail.all("from"))
    believed = address or ""
    results = mail.all(RESULTS)
    if us.authserv_id and not is_proven(results, us.authserv_id, believed, on_top=mail.results_on_top):
        believed = ""
    subject = decode_header_text(mail.first("subject"))[:SUBJECT_CHARS]
    ids = _MESSAGE_ID.findall(mail.first("message-id"))[:1]
    earlier = references(mail)
    text = new_text(mail.text, answers=bool(earlier), forwards=is_forward(subject))
    id = _dedupe_id(ids[0] if ids else "", raw_digest)
    return PlatformMessage(
        message=InboundMessage(
            channel=channel,
            chat_id=address or NOBODY,
            sender_id=believed,
            id=id,
            content=_message_content(text, subject, opens=not earlier or is_forward(subject)),
            timestamp=_sent_ms(mail.first("date"), now_ms),
            thread=thread_name(earlier, ids[0] if ids else id, us.address.rpartition("@")[2]),
            # Quotes, forwards and signatures of others cannot be told apart for sure.
            sources=(source_label(f"mail of {address or NOBODY}"),),
        ),
        own=address == us.address,
        from_bot=is_automatic(mail, address or ""),
        name=decode_header_text(_ADDRESS.sub(" ", mail.first("from"))).replace('"', "").strip(),
        files=tuple(_remote_file(id, number, file) for number, file in enumerate(mail.files)),
        notes=_place_notes(subject, earlier, ids),
    )


def references(mail: Mail) -> tuple[str, ...]:
    """Return the Message-IDs of the earlier mails, the first of the thread first."""
    found = [one for header in mail.all("references")[:1] for one in _MESSAGE_ID.findall(header)]
    found += [one for one in _MESSAGE_ID.findall(mail.first("in-reply-to"))[:1] if one not in found]
    return tuple(found)


def thread_name(before: tuple[str, ...], id: str, domain: str) -> str:
    """Return a thread's name, from a mail of ours that it answers, else from its first mail."""
    for one in reversed(before):
        local, _, of = one.rpartition("@")
        if of.lower() == domain and (ours := _OURS.fullmatch(local)):
            return ours[1]
    return hashlib.sha256((before[0] if before else id).encode("utf-8", "replace")).hexdigest()[:16]


def is_automatic(mail: Mail, address: str) -> bool:
    """Return whether a program wrote it, or to many: a reply could start a loop (RFC 3834)."""
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


def is_forward(subject: str) -> bool:
    """Return whether a mail forwards another one: the quoted part is then what it is about."""
    return _FORWARDS.match(subject) is not None


def new_text(text: str, *, answers: bool, forwards: bool) -> str:
    """Return the new part of a text, without quoted mail and signature. When in doubt all stays: an
    extra quote costs less than a missing sentence. `answers`: it is a reply."""
    text = text.strip("\n").rstrip()
    if forwards or _FORWARDED.search(text):
        return text
    if answers:
        text = strip_quoted(_cut_outlook_quote(text))
    return _cut_signature(text)


def _cut_outlook_quote(text: str) -> str:
    """Cut the text at the headers that Outlook writes above an otherwise unmarked quote."""
    lines = text.split("\n")
    for at, line in enumerate(lines):
        head = lines[at + 1 : at + _HEAD_LINES]
        if _FROM.match(line) and any(map(_SENT.match, head[:4])) and any(map(_SUBJECT.match, head)):
            while at and _RULE.fullmatch(lines[at - 1]):
                at -= 1
            return "\n".join(lines[:at]).rstrip() or text
    return text


def _cut_signature(text: str) -> str:
    """Cut the text at a signature separator (RFC 3676) near the end."""
    lines = text.split("\n")
    for at in range(len(lines) - 1, max(0, len(lines) - 1 - _SIGNATURE_LINES), -1):
        if lines[at] in ("-- ", "--"):
            return "\n".join(lines[:at]).rstrip() or text
    return text


def _message_content(text: str, subject: str, *, opens: bool) -> str:
    """Return the text, with the subject if that is new. A command stays alone."""
    if opens and subject and not text.lstrip().startswith("/"):
        text = f"Subject: {subject}\n\n{text}".strip()
    data = text.encode("utf-8", "replace")
    if len(data) <= TEXT_BYTES:
        return data.decode()
    return f"{data[:TEXT_BYTES].decode('utf-8', 'ignore').rstrip()}\n\n{TOO_LONG}"


def _place_notes(subject: str, before: tuple[str, ...], ids: list[str]) -> dict[str, str]:
    kept = [*before, *ids]
    if len(kept) > REFERENCES_KEPT:
        kept = [kept[0], *kept[1 - REFERENCES_KEPT :]]
    notes = {SUBJECT: subject, REFERENCES: " ".join(one for one in kept if one.isascii())}
    return notes | ({ANSWERS: ids[0]} if ids and ids[0].isascii() else {})


def _dedupe_id(message_id: str, raw_digest: str) -> str:
    """Return a usual Message-ID, else a hash; never with a colon, for such ids are Shoal's own."""
    if _PLAIN_ID.fullmatch(message_id):
        return message_id
    data = message_id.encode("utf-8", "replace")
    return hashlib.sha256(data).hexdigest() if data else raw_digest


def _sent_ms(date: str, now_ms: int) -> int:
    """Return the sender's time in ms, unless it is implausible."""
    try:
        sent = int(parsedate_to_datetime(date).timestamp() * 1000)
    except Exception:  # the email package raises many things over broken dates
        return now_ms
    return sent if 0 < sent <= now_ms else now_ms


def _remote_file(id: str, number: int, file: MailFile) -> RemoteFile:
    """Return the attachment. A truncated one claims an impossible size, so that it is refused."""
    size = len(file.data) if file.whole else 2**62
    return RemoteFile(
        handle=f"{id}/{number}",
        name=file.name,
        media_type=file.media_type if file.media_type.isascii() else "",
        size_bytes=size,
    )
