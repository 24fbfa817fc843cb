"""A mail as bytes, read as far as we need it (RFC 5322, MIME). Pure; takes any bytes.

Mails are made by everybody, and the most broken ones by those who want to be misread: whatever the
email package raises over one is a word of its own here, and a header that two programs could read
in two ways is none.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from email.header import decode_header
from email.message import Message
from email.parser import BytesParser
from email.policy import Compat32
from typing import Final

import msgspec

from gateway.channels.email.charsets import text_of
from gateway.text.incoming import html_to_text

HTML_BYTES: Final = 1_000_000
"""Of an HTML text, what is read."""

DEEPEST: Final = 20
MOST_PARTS: Final = 200
HEADER_CHARS: Final = 4_000

_BLANK: Final = re.compile(rb"\r?\n\r?\n")
_BARE: Final = re.compile(rb"\r(?!\n)|\0")
_BARE_NEWLINE: Final = re.compile(rb"(?<!\r)\n")
_FOLD: Final = re.compile(r"\r?\n[ \t]*")
_SIGNATURES: Final = ("application/pgp-signature", "application/pkcs7-signature", "application/x-pkcs7-signature")
_TEXTS: Final = ("text/plain", "text/html")


class Unreadable(Exception):
    """Bytes that are no mail, or one that must not be read."""


class Attached(msgspec.Struct, frozen=True):
    """A file in a mail; `whole` is false where the mail was cut before its end."""

    name: str
    media_type: str
    data: bytes
    whole: bool = True


class Mail(msgspec.Struct, frozen=True):
    """What is in one. `headers` by their names in lower case, each as it stands, on one line;
    `text` without markup."""

    headers: dict[str, tuple[str, ...]]
    text: str
    files: tuple[Attached, ...] = ()

    def all(self, name: str) -> tuple[str, ...]:
        """Every header of this name, the topmost one first."""
        return self.headers.get(name, ())

    def first(self, name: str) -> str:
        """'' when there is none."""
        return self.headers.get(name, ("",))[0]


class _AsItStands(Compat32):
    """The email package makes other objects of headers that hold bytes; these stay text."""

    def header_fetch_parse(self, name: str, value: str) -> str:
        return value


_PARSER: Final = BytesParser(policy=_AsItStands())


def read_mail(raw: bytes, *, whole: bool = True) -> Mail:
    """Raises Unreadable. `whole`: nothing was cut off at the end."""
    head = _BLANK.split(raw, maxsplit=1)[0]
    if _BARE.search(head) or (b"\r\n" in head and _BARE_NEWLINE.search(head)):
        raise Unreadable("line ends in its header that others read in another way")
    try:
        message = _PARSER.parsebytes(raw)
        reader = _Reader()
        text, _ = reader.read(message, 0)
    except Exception as exc:  # the email package raises whatever a broken mail makes it stumble over
        raise Unreadable(type(exc).__name__) from exc
    files = reader.files
    if not whole and files:
        files[-1] = msgspec.structs.replace(files[-1], whole=False)
    return Mail(_headers(message), text, tuple(files))


def decoded(header: str) -> str:
    """A header for people: encoded words decoded, one line, nothing that cannot be shown."""
    value = text_of(header[:HEADER_CHARS].encode("utf-8", "surrogateescape"), "utf-8")
    return " ".join("".join(sign if sign.isprintable() else " " for sign in _words(value)).split())


def _words(value: str) -> str:
    """Encoded words as what they say; all as it stands when one of them is broken."""
    try:
        parts = decode_header(value)
    except Exception:  # the email package, as above
        return value
    return "".join(one if isinstance(one, str) else text_of(one, charset or "utf-8") for one, charset in parts)


class _Reader:
    """Walks through the parts of a mail; collects its files."""

    def __init__(self) -> None:
        self.files: list[Attached] = []
        self._parts = 0

    def read(self, part: Message, depth: int) -> tuple[str, bool]:
        """Its text, and whether that was HTML."""
        self._parts += 1
        if depth > DEEPEST or self._parts > MOST_PARTS:
            return "", False
        kind = part.get_content_type()
        inner = part.get_payload()
        if isinstance(inner, list):
            if kind == "message/rfc822" and depth:
                return "\n\n".join(self._forwarded(one, depth) for one in inner if isinstance(one, Message)), False
            children = [one for one in inner if isinstance(one, Message)]
            return self._best(children, depth) if kind == "multipart/alternative" else self._all(children, depth)
        name = _name_of(part)
        broken = kind.startswith("multipart/")  # without its border: all of it is text
        if broken or (kind in _TEXTS and not name and _quietly(part.get_content_disposition) != "attachment"):
            return _text(part, kind), kind == "text/html"
        if kind not in _SIGNATURES:
            data = part.get_payload(decode=True)
            self.files.append(Attached(name or _name_for(kind), kind, data if isinstance(data, bytes) else b""))
        return "", False

    def _all(self, parts: list[Message], depth: int) -> tuple[str, bool]:
        texts = [self.read(one, depth + 1) for one in parts]
        return "\n\n".join(text for text, _ in texts if text.strip()), any(html for _, html in texts)

    def _best(self, parts: list[Message], depth: int) -> tuple[str, bool]:
        """The same in several forms: the plain one, if it says anything."""
        texts = [
            self.read(one, depth + 1)
            for one in parts
            if one.get_content_type() in _TEXTS or one.get_content_maintype() == "multipart"
        ]
        said = [one for one in texts if one[0].strip()]
        return next((one for one in said if not one[1]), said[0] if said else ("", False))

    def _forwarded(self, mail: Message, depth: int) -> str:
        """A mail inside a mail, as text."""
        headers = _headers(mail)
        shown = [(name, decoded(headers[name][0])) for name in ("from", "date", "subject") if headers.get(name)]
        told = "\n".join(f"{name.capitalize()}: {value}" for name, value in shown)
        return f"---------- Forwarded message ----------\n{told}\n\n{self.read(mail, depth + 1)[0]}".strip()


def _text(part: Message, kind: str) -> str:
    data = part.get_payload(decode=True)
    charset = _quietly(part.get_content_charset) or "utf-8"
    text = text_of(data if isinstance(data, bytes) else b"", charset)
    if kind == "text/html":
        return html_to_text(text[:HTML_BYTES])
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    return _unflowed(text) if _parameter(part, "format").lower() == "flowed" else text


def _unflowed(text: str) -> str:
    """Lines that end with a space go on in the next one (RFC 3676); quoted ones stay as they
    are."""
    lines: list[str] = []
    for line in text.split("\n"):
        open_ended = bool(lines) and lines[-1].endswith(" ") and lines[-1] != "-- " and not lines[-1].startswith(">")
        line = line if line.startswith(">") else line.removeprefix(" ")
        if open_ended and not line.startswith(">") and line != "-- ":
            lines[-1] += line
        else:
            lines.append(line)
    return "\n".join(lines)


def _headers(message: Message) -> dict[str, tuple[str, ...]]:
    found: dict[str, list[str]] = {}
    for name, value in message.raw_items():
        found.setdefault(name.lower(), []).append(_FOLD.sub(" ", str(value)).strip())
    return {name: tuple(values) for name, values in found.items()}


def _name_of(part: Message) -> str:
    try:
        return decoded(part.get_filename() or "")
    except Exception:  # as above
        return ""


def _name_for(kind: str) -> str:
    main, _, sub = kind.partition("/")
    return f"{main}.{sub}" if re.fullmatch(r"[a-z0-9]{1,10}", sub) else main


def _parameter(part: Message, name: str) -> str:
    try:
        value = part.get_param(name)
    except Exception:  # as above
        return ""
    return value if isinstance(value, str) else ""


def _quietly(ask: Callable[[], str | None]) -> str:
    try:
        value = ask()
    except Exception:  # as above
        return ""
    return value if isinstance(value, str) else ""
