"""Decode the bytes of a mail whatever charset they claim. Pure; accepts any bytes and any name."""

from __future__ import annotations

import codecs
import contextlib
import re
from typing import Final

_KNOWN: Final = re.compile(
    r"ascii|utf-8|utf-8-sig|utf-7|utf-16(-[bl]e)?|utf-32(-[bl]e)?|iso8859-\d+|cp\d+|koi8-[rtu]|mac-\w+|ptcp154|kz1048|"
    r"big5(hkscs)?|gb2312|gbk|gb18030|hz|euc_(jp|jis_2004|jisx0213|kr)|johab|shift_jis(_2004|x0213)?|"
    r"iso2022_(jp(_\d|_2004|_ext)?|kr)|tis-620"
)
"""Python codecs in which mails are written. The others are not text, or slow on small input
(punycode)."""

_ALIASES: Final = {"iso8859-1": "cp1252", "gb2312": "gb18030", "gbk": "gb18030"}
"""Charsets that many programs mean by a related name."""


def decode_text(data: bytes, charset: str) -> str:
    """Return the text; never fails. Bytes that do not fit the charset are read as UTF-8, else as
    Windows-1252."""
    named = _codec(charset)
    for name in (named, "utf-8"):
        with contextlib.suppress(UnicodeError):
            if name is not None:
                return data.decode(name)
    return data.decode("cp1252" if named in (None, "ascii") else named, "replace")


def _codec(charset: str) -> str | None:
    try:
        name = codecs.lookup(charset.strip().strip("'\"").encode("ascii", "ignore").decode()).name
    except (LookupError, ValueError):
        return None
    return _ALIASES.get(name, name) if _KNOWN.fullmatch(name) else None
