"""Read a text file in whatever character set it was saved: by its mark, as UTF-8, else by a guess.

Short texts are what people send (a table of three lines, a note), so the guess is made from letters
that are frequent in each language. The standard library has every codec that this needs."""

from __future__ import annotations

import codecs
import re
from math import inf
from typing import Final

import msgspec

from shared.encodings.candidates import CANDIDATES, reads_as_text

UTF_8: Final = "UTF-8"

# UTF-32 first: its little-endian mark begins with that of UTF-16.
_MARKS: Final = (
    (codecs.BOM_UTF8, UTF_8, "utf-8"),
    (codecs.BOM_UTF32_LE, "UTF-32", "utf-32-le"),
    (codecs.BOM_UTF32_BE, "UTF-32", "utf-32-be"),
    (codecs.BOM_UTF16_LE, "UTF-16", "utf-16-le"),
    (codecs.BOM_UTF16_BE, "UTF-16", "utf-16-be"),
)
_WIDE: Final = (
    ("UTF-16 LE", "utf-16-le"),
    ("UTF-16 BE", "utf-16-be"),
    ("UTF-32 LE", "utf-32-le"),
    ("UTF-32 BE", "utf-32-be"),
)
# ISO 2022 switches its sets by escape sequences, and is ASCII otherwise.
_ESCAPED: Final = ((b"\x1b$)C", "ISO-2022-KR", "iso2022_kr"), (b"\x1b$", "ISO-2022-JP", "iso2022_jp_2"))
_CONTROLS: Final = re.compile(rb"[\x00-\x08\x0e-\x1a\x1c-\x1f]")
_HIGH: Final = re.compile(rb"[\x80-\xff]")
_SAMPLE_BYTES: Final = 6 * 1024
_BROKEN_SHARE: Final = 0.1


class DecodedText(msgspec.Struct, frozen=True):
    """A text, the name of the character set that it was read as, and what is needed to write it in
    the same way: the codec, and the mark at its beginning. `broken` counts bytes that do not fit;
    each is U+FFFD in the text, and such a file cannot be written again without loss."""

    text: str
    name: str
    codec: str
    mark: bytes = b""
    broken: int = 0

    @property
    def described(self) -> str:
        """`GB18030`, or `UTF-8 with 2 broken bytes`."""
        many = "byte" if self.broken == 1 else "bytes"
        return f"{self.name} with {self.broken} broken {many}" if self.broken else self.name

    @property
    def plain(self) -> bool:
        """True for UTF-8 that needs no mention."""
        return self.name == UTF_8 and not self.broken

    def encode(self, text: str) -> bytes:
        """Encode another text in the same way. Raises UnicodeEncodeError for a character that this
        character set does not have."""
        return self.mark + text.encode(self.codec)


def decode_file(data: bytes) -> DecodedText | None:
    """Return the text of a file; None for what is not text in any character set. Takes up to a
    second for megabytes: call it in a thread."""
    for mark, name, codec in _MARKS:
        if data.startswith(mark) and (found := _decode(data[len(mark) :], name, codec, mark)):
            return found
    if b"\0" in data:
        return _decode_wide(data)
    for escape, name, codec in _ESCAPED:
        if escape in data and (found := _decode(data, name, codec)):
            return found
    if found := _decode(data, UTF_8, "utf-8"):
        return found
    if _CONTROLS.search(data):
        return None
    return _decode_broken(data) or guess_text(data)


def guess_text(data: bytes) -> DecodedText | None:
    """Return the text of bytes that are neither ASCII nor UTF-8, in the most likely character set;
    None if they are a text in none."""
    first = _HIGH.search(data)
    if first is None:
        return None
    # What stands before is ASCII, so no character is cut in two here.
    start = max(0, first.start() - 1)
    sample = data[start : start + _SAMPLE_BYTES]
    ranked = sorted(((one.score_of(sample), -n, one) for n, one in enumerate(CANDIDATES)), reverse=True)
    decoded = (_decode(data, one.name, one.codec) for score, _, one in ranked if score > -inf)
    return next(filter(None, decoded), None)


def _decode(data: bytes, name: str, codec: str, mark: bytes = b"") -> DecodedText | None:
    try:
        text = data.decode(codec)
    except UnicodeDecodeError:
        return None
    return None if mark and "\0" in text else DecodedText(text, name, codec, mark)


def _decode_wide(data: bytes) -> DecodedText | None:
    """Return UTF-16 or UTF-32 without a mark."""
    found = [one for name, codec in _WIDE if (one := _decode(data, name, codec)) is not None]
    best = max(found, key=lambda one: reads_as_text(one.text), default=None)
    return best if best is not None and reads_as_text(best.text) else None


def _decode_broken(data: bytes) -> DecodedText | None:
    """Return UTF-8 in which a few bytes are wrong, as in a file that was cut in a character."""
    text = data.decode("utf-8", "replace")
    broken = text.count("\ufffd")
    right = sum(1 for sign in text if sign > "\x7f") - broken
    cut_at_end = broken == 1 < right and text.endswith("\ufffd")
    if broken > right * _BROKEN_SHARE and not cut_at_end:
        return None
    return DecodedText(text, UTF_8, "utf-8", broken=broken)
