"""Decode a mail as far as we need it (RFC 5322, MIME). Pure; accepts any bytes.

The most malformed mails come from people who want to be misread: every exception of the email
package becomes UnreadableMail, and a header that two programs could read differently is refused.
"""

from __future__ import annotations

import codecs
import contextlib
import re
from collections.abc import Callable
from email.header import decode_header
from email.message import Message
from email.parser import BytesParser
from email.policy import Compat32
from typing import Final

import msgspec
from msgspec.structs import replace

from gateway.text.incoming import html_to_text

HTML_BYTES: Final = 1_000_000
"""Limit for the HTML that is read."""

DEEPEST: Final = 20
MOST_PARTS: Final = 200
HEADER_CHARS: Final = 4_000

_BLANK: Final = re.compile(rb"\r?\n\r?\n")
_BARE: Final = re.compile(rb"\r(?!\n)|\0")
_BARE_NEWLINE: Final = re.compile(rb"(?<!\r)\n")
_FOLD: Final = re.compile(r"\r?\n[ \t]*")
_SIGNATURES: Final = ("application/pgp-signature", "application/pkcs7-signature", "application/x-pkcs7-signature")
_TEXTS: Final = ("text/plain", "text/html")

_KNOWN: Final = re.compile(
    r"ascii|utf-8|utf-8-sig|utf-7|utf-16(-[bl]e)?|utf-32(-[bl]e)?|iso8859-\d+|cp\d+|koi8-[rtu]|mac-\w+|ptcp154|kz1048|"
    r"big5(hkscs)?|gb2312|gbk|gb18030|hz|euc_(jp|jis_2004|jisx0213|kr)|johab|shift_jis(_2004|x0213)?|"
    r"iso2022_(jp(_\d|_2004|_ext)?|kr)|tis-620"
)
"""Codecs in which mails are written. Others are not text, or slow on small input (punycode)."""

_ALIASES: Final = {"iso8859-1": "cp1252", "gb2312": "gb18030", "gbk": "gb18030"}
"""Charsets that many programs mean by a related name."""


class UnreadableMail(Exception):
    """Bytes that are not a mail, or one that must not be read."""


class MailFile(msgspec.Struct, frozen=True):
    """An attachment; `whole` is false if the mail was truncated in it."""

    name: str
    media_type: str
    data: bytes
    whole: bool = True


class Mail(msgspec.Struct, frozen=True):
    """A decoded mail. `headers` by lower-case name, each unfolded; `text` without markup."""

    headers: dict[str, tuple[str, ...]]
    text: str
    files: tuple[MailFile, ...] = ()

    def all(self, name: str) -> tuple[str, ...]:
        """Return every header of this name, the topmost first."""
        return self.headers.get(name, ())

    def first(self, name: str) -> str:
        """Return the topmost header of this name, '' if there is none."""
        return self.headers.get(name, ("",))[0]


class _RawHeaderPolicy(Compat32):
    """Keeps headers as text; the package's own policy makes objects of those with raw bytes."""

    def header_fetch_parse(self, name: str, value: str) -> str:
        return value


_PARSER: Final = BytesParser(policy=_RawHeaderPolicy())


def read_mail(raw: bytes, *, whole: bool = True) -> Mail:
    """Decode a mail. Raises UnreadableMail. `whole`: nothing was cut off at the end."""
    head = _BLANK.split(raw, maxsplit=1)[0]
    if _BARE.search(head) or (b"\r\n" in head and _BARE_NEWLINE.search(head)):
        raise UnreadableMail("line ends in its header that others read in another way")
    try:
        message = _PARSER.parsebytes(raw)
        reader = _PartReader()
        text, _ = reader.read_part(message, 0)
    except Exception as exc:  # the email package raises anything over a broken mail
        raise UnreadableMail(type(exc).__name__) from exc
    files = reader.files
    if not whole and files:
        files[-1] = replace(files[-1], whole=False)
    return Mail(_read_headers(message), text, tuple(files))


def decode_text(data: bytes, charset: str) -> str:
    """Return the text; never fails. What does not fit is read as UTF-8, else as Windows-1252."""
    named = None
    with contextlib.suppress(LookupError, ValueError):
        name = codecs.lookup(charset.strip().strip("'\"").encode("ascii", "ignore").decode()).name
        named = _ALIASES.get(name, name) if _KNOWN.fullmatch(name) else None
    for name in filter(None, (named, "utf-8")):
        with contextlib.suppress(UnicodeError):
            return data.decode(name)
    return data.decode("cp1252" if named in (None, "ascii") else named, "replace")


def decode_header_text(header: str) -> str:
    """Return a header for display: encoded words decoded, one line, printable characters only."""
    value = decode_text(header[:HEADER_CHARS].encode("utf-8", "surrogateescape"), "utf-8")
    with contextlib.suppress(Exception):  # as above: a broken word leaves the header unchanged
        parts = [(one, charset or "utf-8") for one, charset in decode_header(value)]
        value = "".join(one if isinstance(one, str) else decode_text(one, name) for one, name in parts)
    return " ".join("".join(sign if sign.isprintable() else " " for sign in value).split())


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
        headers, shown = _read_headers(mail), ("from", "date", "subject")
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


def _read_headers(message: Message) -> dict[str, tuple[str, ...]]:
    found: dict[str, list[str]] = {}
    for name, value in message.raw_items():
        found.setdefault(name.lower(), []).append(_FOLD.sub(" ", str(value)).strip())
    return {name: tuple(values) for name, values in found.items()}


def _default_name(kind: str) -> str:
    main, _, sub = kind.partition("/")
    return f"{main}.{sub}" if re.fullmatch(r"[a-z0-9]{1,10}", sub) else main


def _quietly(ask: Callable[[], object]) -> str:
    try:
        value = ask()
    except Exception:  # the email package, as above
        return ""
    return value if isinstance(value, str) else ""
