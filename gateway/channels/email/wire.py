"""Decode the header of a mail (RFC 5322), and texts of any charset. Pure; accepts any bytes.

The most malformed mails come from people who want to be misread: every exception of the email
package becomes UnreadableMail, and a header that two programs could read differently is refused.
"""

from __future__ import annotations

import contextlib
import re
from email.header import decode_header
from email.message import Message
from email.parser import BytesParser
from email.policy import Compat32
from typing import Final

import msgspec

from shared.encodings.decode import guess_text
from shared.encodings.labels import codec_of, decode_labelled

HEADER_BYTES: Final = 128 * 1024
"""Limit for the header of a mail."""

HEADER_CHARS: Final = 4_000
RESULTS: Final = "authentication-results"

_BLANK: Final = re.compile(rb"\r?\n\r?\n")
_BARE: Final = re.compile(rb"\r(?!\n)|\0")
_BARE_NEWLINE: Final = re.compile(rb"(?<!\r)\n")
_FOLD: Final = re.compile(r"\r?\n[ \t]*")


class UnreadableMail(Exception):
    """Bytes that are not a mail, or one that must not be read."""


class MailFile(msgspec.Struct, frozen=True):
    """An attachment; `whole` is false if the mail was truncated in it."""

    name: str
    media_type: str
    data: bytes
    whole: bool = True


class Mail(msgspec.Struct, frozen=True):
    """A decoded mail. `headers` by lower-case name, each unfolded; `results_on_top` of its
    Authentication-Results are above the first Received, where its sender cannot write. `text` is
    without markup, and empty like `files` as long as only the header was read."""

    headers: dict[str, tuple[str, ...]]
    results_on_top: int = 0
    text: str = ""
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


PARSER: Final = BytesParser(policy=_RawHeaderPolicy())


def read_header(raw: bytes) -> Mail:
    """Decode the header of a mail, of which `raw` is the beginning. Raises UnreadableMail."""
    header = _BLANK.split(raw, maxsplit=1)[0]
    if len(header) > HEADER_BYTES:
        raise UnreadableMail("a header that is too long")
    if _BARE.search(header) or (b"\r\n" in header and _BARE_NEWLINE.search(header)):
        raise UnreadableMail("line ends in its header that others read in another way")
    try:
        message = PARSER.parsebytes(header + b"\r\n\r\n", headersonly=True)
        return Mail(header_values(message), _count_above(message, RESULTS, "received"))
    except Exception as exc:  # the email package raises anything over a broken mail
        raise UnreadableMail(type(exc).__name__) from exc


def decode_text(data: bytes, charset: str) -> str:
    """Return the text; never fails. Where the charset is unknown or wrong it is guessed; what no guess
    fits is read by the charset as far as possible, else as Windows-1252."""
    if (text := decode_labelled(data, charset)) is not None:
        return text
    with contextlib.suppress(UnicodeError):
        return data.decode("utf-8")
    if found := guess_text(data):
        return found.text
    codec = codec_of(charset)
    return data.decode("cp1252" if codec in (None, "ascii") else codec, "replace")


def decode_header_text(header: str) -> str:
    """Return a header for display: encoded words decoded, one line, printable characters only."""
    value = decode_text(header[:HEADER_CHARS].encode("utf-8", "surrogateescape"), "utf-8")
    with contextlib.suppress(Exception):  # as above: a broken word leaves the header unchanged
        parts = [(one, charset or "utf-8") for one, charset in decode_header(value)]
        value = "".join(one if isinstance(one, str) else decode_text(one, name) for one, name in parts)
    return " ".join("".join(sign if sign.isprintable() else " " for sign in value).split())


def header_values(message: Message) -> dict[str, tuple[str, ...]]:
    """Return the values of each header by lower-case name, unfolded, the topmost first."""
    found: dict[str, list[str]] = {}
    for name, value in message.raw_items():
        found.setdefault(name.lower(), []).append(_FOLD.sub(" ", str(value)).strip())
    return {name: tuple(values) for name, values in found.items()}


def _count_above(message: Message, name: str, other: str) -> int:
    """Return how many headers of a name are above the first one of another name."""
    names = [one.lower() for one, _ in message.raw_items()]
    return names[: names.index(other)].count(name) if other in names else 0
