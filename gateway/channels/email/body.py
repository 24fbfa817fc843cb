"""Decode the text and the files of a mail (MIME). Pure; accepts any bytes.

A hostile mail may take any time and memory here, so a gateway does it in a confined process
(`read_content`), and only for senders who may write to it."""

from __future__ import annotations

import re
from collections.abc import Callable
from email.message import Message
from itertools import islice
from typing import Final

import msgspec
from msgspec.structs import replace

from gateway.channels.email.wire import (
    PARSER,
    Mail,
    MailFile,
    UnreadableMail,
    decode_header_text,
    decode_text,
    header_values,
    read_header,
)
from gateway.text.incoming import html_to_text

HTML_BYTES: Final = 1_000_000
"""Limit for the HTML that is read."""

TEXT_CHARS: Final = 256 * 1024
"""Limit for the text that leaves the process: four times of what is kept without its quotes."""

DEEPEST: Final = 20
MOST_PARTS: Final = 200

_BOUNDARY: Final = re.compile(rb"""boundary\s*=\s*(?:"([^"\r\n]{1,70})|([^\s";]{1,70}))""", re.IGNORECASE)
_SIGNATURES: Final = ("application/pgp-signature", "application/pkcs7-signature", "application/x-pkcs7-signature")
_TEXTS: Final = ("text/plain", "text/html")


class MailContent(msgspec.Struct, frozen=True):
    """The text and the files of a mail."""

    text: str
    files: tuple[MailFile, ...]


decode_content: Final = msgspec.msgpack.Decoder(MailContent).decode


def read_content(raw: bytes) -> bytes:
    """Decode a mail in a process of its own (`ParserProcess`); return its MailContent as msgpack."""
    mail = read_mail(raw)
    files = [
        replace(file, name=_without_surrogates(file.name), media_type=_without_surrogates(file.media_type))
        for file in mail.files
    ]
    text = _without_surrogates(mail.text[:TEXT_CHARS])
    return msgspec.msgpack.encode(MailContent(text, tuple(files)))


def read_mail(raw: bytes) -> Mail:
    """Decode a mail. Raises UnreadableMail."""
    mail = read_header(raw)
    reader = _PartReader()
    try:
        text, _ = reader.read_part(PARSER.parsebytes(_first_parts(raw)), 0)
    except Exception as exc:  # the email package raises anything over a broken mail
        raise UnreadableMail(type(exc).__name__) from exc
    return replace(mail, text=text, files=tuple(reader.files))


def cut_last(files: tuple[MailFile, ...]) -> tuple[MailFile, ...]:
    """Return the files of a mail that was truncated: the last one is not whole."""
    return (*files[:-1], *(replace(file, whole=False) for file in files[-1:]))


def _first_parts(raw: bytes) -> bytes:
    """Return a mail up to the border after MOST_PARTS parts: the email package would make objects
    of all of them, which takes minutes for a few megabytes."""
    declared = (found[1] or found[2] for found in _BOUNDARY.finditer(raw))
    names = b"|".join(re.escape(one) for one in {*islice(declared, MOST_PARTS)})
    borders = re.finditer(rb"(?m)^--(?:%s)" % names, raw) if names else iter(())
    last = next(islice(borders, MOST_PARTS, None), None)
    return raw if last is None else raw[: last.start()]


class _PartReader:
    def __init__(self) -> None:
        self.files: list[MailFile] = []
        self._parts = 0

    def read_part(self, part: Message, depth: int) -> tuple[str, bool]:
        """Return the text of a part, and whether it was HTML."""
        self._parts += 1
        if depth > DEEPEST or self._parts > MOST_PARTS:
            return "", False
        kind = part.get_content_type()
        inner = part.get_payload()
        if isinstance(inner, list):
            children = [one for one in inner if isinstance(one, Message)]
            if kind == "message/rfc822" and depth:
                return "\n\n".join(self._read_forwarded(one, depth) for one in children), False
            if kind == "multipart/alternative":
                return self._read_alternative(children, depth)
            texts = [self.read_part(one, depth + 1) for one in children]
            joined = "\n\n".join(text for text, _ in texts if text.strip())
            return joined, any(html for _, html in texts)
        name = _quietly(lambda: decode_header_text(part.get_filename() or ""))
        broken = kind.startswith("multipart/")  # without its border: all of it is text
        attached = name or _quietly(part.get_content_disposition) == "attachment"
        if broken or (kind in _TEXTS and not attached):
            return _part_text(part, kind), kind == "text/html"
        if kind not in _SIGNATURES:
            data = part.get_payload(decode=True)
            content = data if isinstance(data, bytes) else b""
            self.files.append(MailFile(name or _default_name(kind), kind, content))
        return "", False

    def _read_alternative(self, parts: list[Message], depth: int) -> tuple[str, bool]:
        """Return the best of several forms: the plain one, unless it is empty."""
        texts = [
            self.read_part(one, depth + 1)
            for one in parts
            if one.get_content_type() in _TEXTS or one.get_content_maintype() == "multipart"
        ]
        nonempty = [one for one in texts if one[0].strip()]
        plain = [one for one in nonempty if not one[1]]
        return next(iter([*plain, *nonempty]), ("", False))

    def _read_forwarded(self, mail: Message, depth: int) -> str:
        """Return a mail inside a mail as text."""
        headers = header_values(mail)
        shown = ("from", "date", "subject")
        values = [(one, decode_header_text(headers[one][0])) for one in shown if headers.get(one)]
        head = "\n".join(f"{name.capitalize()}: {value}" for name, value in values)
        text, _ = self.read_part(mail, depth + 1)
        return f"---------- Forwarded message ----------\n{head}\n\n{text}".strip()


def _part_text(part: Message, kind: str) -> str:
    data = part.get_payload(decode=True)
    charset = _quietly(part.get_content_charset) or "utf-8"
    text = decode_text(data if isinstance(data, bytes) else b"", charset)
    if kind == "text/html":
        return html_to_text(text[:HTML_BYTES])
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    form = _quietly(lambda: part.get_param("format"))
    return _join_flowed(text) if form.lower() == "flowed" else text


def _join_flowed(text: str) -> str:
    """Join lines that end with a space to the next one (RFC 3676); quoted ones stay unchanged."""
    lines: list[str] = []
    for line in text.split("\n"):
        last = lines[-1] if lines else ""
        open_ended = last.endswith(" ") and last != "-- " and not last.startswith(">")
        line = line if line.startswith(">") else line.removeprefix(" ")
        if open_ended and not line.startswith(">") and line != "-- ":
            lines[-1] += line
        else:
            lines.append(line)
    return "\n".join(lines)


def _default_name(kind: str) -> str:
    main, _, sub = kind.partition("/")
    return f"{main}.{sub}" if re.fullmatch(r"[a-z0-9]{1,10}", sub) else main


def _quietly(ask: Callable[[], object]) -> str:
    try:
        value = ask()
    except Exception:  # the email package, as above
        return ""
    return value if isinstance(value, str) else ""


def _without_surrogates(text: str) -> str:
    return text.encode("utf-8", "replace").decode()
