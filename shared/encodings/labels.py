"""Names of character sets as mails and pages write them (WHATWG Encoding Standard), as Python's codecs."""

from __future__ import annotations

import codecs
import re
from typing import Final

_KNOWN: Final = re.compile(
    r"ascii|utf-8(-sig)?|utf-7|utf-16(-[bl]e)?|utf-32(-[bl]e)?|iso8859-\d+|cp\d+|koi8-[rtu]|mac-\w+|ptcp154|kz1048|"
    r"big5(hkscs)?|gb2312|gbk|gb18030|hz|euc_(jp|jis_2004|jisx0213|kr)|johab|shift_jis(_2004|x0213)?|"
    r"iso2022_(jp(_\d|_2004|_ext)?|kr)|tis-620"
)
"""Codecs in which texts are written. Others are not text, or slow on small input (punycode)."""

_CODECS: Final = {
    # Sets that programs mean by the name of an older, smaller one.
    "iso8859-1": "cp1252",
    "iso8859-9": "cp1254",
    "iso8859-11": "cp874",
    "tis-620": "cp874",
    "gb2312": "gb18030",
    "gbk": "gb18030",
    "big5": "big5hkscs",
    "euc_kr": "cp949",
    "shift_jis": "cp932",
}
_LABELS: Final = {
    # What Python has no alias for. Letters alone: see `_plain`.
    "iso88596i": "iso8859-6",
    "iso88596e": "iso8859-6",
    "csiso88596i": "iso8859-6",
    "csiso88596e": "iso8859-6",
    "asmo708": "iso8859-6",
    "iso88598i": "iso8859-8",
    "iso88598e": "iso8859-8",
    "csiso88598i": "iso8859-8",
    "csiso88598e": "iso8859-8",
    "logical": "iso8859-8",
    "visual": "iso8859-8",
    "suneugreek": "iso8859-7",
    "dos874": "cp874",
    "windows874": "cp874",
    "windows949": "cp949",
    "windows936": "gb18030",
    "windows950": "big5hkscs",
    "gbk": "gb18030",
    "cngb": "gb18030",
    "gb231280": "gb18030",
    "csiso58gb231280": "gb18030",
    "csgb2312": "gb18030",
    "isoir58": "gb18030",
    "chinese": "gb18030",
    "xbig5": "big5hkscs",
    "cnbig5": "big5hkscs",
    "isoir149": "cp949",
    "ksc56011987": "cp949",
    "ksc56011989": "cp949",
    "csksc56011987": "cp949",
    "ksc5601": "cp949",
    "korean": "cp949",
    "sjis": "cp932",
    "mskanji": "cp932",
    "windows31j": "cp932",
    "eucjp": "euc_jp",
    "cseucpkdfmtjapanese": "euc_jp",
    "iso2022jp": "iso2022_jp_2",
    "csiso2022jp": "iso2022_jp_2",
    "koi": "koi8-r",
    "koi8": "koi8-r",
    "cskoi8r": "koi8-r",
    "koi8ru": "koi8-u",
    "mac": "mac-roman",
    "macintosh": "mac-roman",
    "csmacintosh": "mac-roman",
    "maccyrillic": "mac-cyrillic",
    "macukrainian": "mac-cyrillic",
    "unicode11utf7": "utf-7",
    "unicode20utf7": "utf-7",
    "csunicode11utf7": "utf-7",
    "unicode11utf8": "utf-8",
    "unicode20utf8": "utf-8",
    "utf8mb4": "utf-8",
    "ucs2": "utf-16",
    "iso10646ucs2": "utf-16",
    "csunicode": "utf-16",
    "unicode": "utf-16",
    "unicodefffe": "utf-16-be",
    "unicodefeff": "utf-16",
    "ansix341968": "ascii",
}
_SIGNS: Final = re.compile(r"[^a-z0-9]+")
_WINDOWS: Final = re.compile(r"(?:x?cp|x?windows|xansi|ansi|ms)(125[0-8])")


def codec_of(label: str) -> str | None:
    """Return the codec for the label of a character set; None for one that is unknown or means
    nothing (`unknown-8bit`). Labels are read with any signs, quotes and `x-` in front."""
    name = label.strip().strip("'\"").lower()
    plain = _SIGNS.sub("", name.encode("ascii", "ignore").decode())
    if windows := _WINDOWS.fullmatch(plain):
        return f"cp{windows[1]}"
    for form in (plain, plain.removeprefix("x"), plain.removeprefix("xx")):
        if form in _LABELS:
            return _LABELS[form]
    for form in (name, name.removeprefix("x-")):
        try:
            codec = codecs.lookup(form.encode("ascii", "ignore").decode()).name
        except (LookupError, ValueError):
            continue
        if _KNOWN.fullmatch(codec):
            return _CODECS.get(codec, codec)
    return None


def decode_labelled(data: bytes, label: str) -> str | None:
    """Return the text of bytes whose character set is named by `label`; None for an unknown label,
    and where the bytes are not in that set. UTF-8 that is labelled as an older set of single bytes
    is read as what it is: by chance hardly any such text is UTF-8."""
    codec = codec_of(label)
    if codec is None:
        return None
    try:
        text = data.decode("utf-8-sig" if codec == "utf-8" else codec)
        if codec.startswith(("cp125", "iso8859")) and not data.isascii():
            return _decode_utf_8(data) or text
    except UnicodeError:
        return None
    return text


def _decode_utf_8(data: bytes) -> str | None:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return None
