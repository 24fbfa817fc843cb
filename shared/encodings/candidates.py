"""The character sets that people still save files in, with the languages written in each."""

from __future__ import annotations

from typing import Final

from shared.encodings import letters
from shared.encodings.score import SAMPLE_CHARS, Candidate, Score, alphabet, ideographs, latin

_CYRILLIC: Final = tuple(alphabet(one, "\u0401", "\u0491") for one in letters.CYRILLIC)
_GREEK: Final = (alphabet(letters.GREEK, "\u0386", "\u03ce"),)
_HEBREW: Final = (alphabet(letters.HEBREW, "\u05d0", "\u05ea"),)
_ARABIC: Final = (alphabet(letters.ARABIC, "\u060c", "\u06d2"),)
_THAI: Final = (alphabet(letters.THAI, "\u0e01", "\u0e5b"),)
_WESTERN: Final = tuple(map(latin, letters.WESTERN))
_CENTRAL: Final = tuple(map(latin, letters.CENTRAL))
_BALTIC: Final = tuple(map(latin, letters.BALTIC))
_TURKISH: Final = (latin(letters.TURKISH),)
_JAPANESE: Final = letters.KANA | letters.KANJI

_SETS: Final[tuple[tuple[str, str, tuple[Score, ...]], ...]] = (
    # Of two that fit equally well the earlier one is taken.
    ("windows-1252", "cp1252", _WESTERN),
    ("windows-1251", "cp1251", _CYRILLIC),
    ("EUC-KR", "cp949", (ideographs("cp949", letters.HANGUL, (0xB0, 0xC8)),)),
    ("GB18030", "gb18030", (ideographs("gb18030", letters.SIMPLIFIED, (0xB0, 0xD7)),)),
    ("Big5", "big5hkscs", (ideographs("big5hkscs", letters.TRADITIONAL, (0xA4, 0xC6)),)),
    ("Shift_JIS", "cp932", (ideographs("cp932", _JAPANESE, (0x82, 0x83), (0x88, 0x97)),)),
    ("EUC-JP", "euc_jp", (ideographs("euc_jp", _JAPANESE, (0xA4, 0xA5), (0xB0, 0xCF)),)),
    ("windows-1250", "cp1250", _CENTRAL),
    ("ISO-8859-2", "iso8859-2", _CENTRAL),
    ("windows-1254", "cp1254", _TURKISH),
    ("windows-1257", "cp1257", _BALTIC),
    ("ISO-8859-13", "iso8859-13", _BALTIC),
    ("ISO-8859-15", "iso8859-15", _WESTERN),
    ("KOI8-R", "koi8-r", _CYRILLIC),
    ("ISO-8859-5", "iso8859-5", _CYRILLIC),
    ("IBM866", "cp866", _CYRILLIC),
    ("windows-1253", "cp1253", _GREEK),
    ("ISO-8859-7", "iso8859-7", _GREEK),
    ("windows-1255", "cp1255", _HEBREW),
    ("windows-1256", "cp1256", _ARABIC),
    ("ISO-8859-6", "iso8859-6", _ARABIC),
    ("windows-874", "cp874", _THAI),
    ("IBM850", "cp850", _WESTERN),
    ("Macintosh", "mac-roman", _WESTERN),
)
# How much rarer files in a set are than others, as a score; they win by clear evidence alone.
_RARITY: Final = {
    "IBM866": -6.0,
    "IBM850": -6.0,
    "Macintosh": -8.0,
    "ISO-8859-13": -4.0,
    "ISO-8859-15": -1.0,
    "KOI8-R": -3.0,
    "ISO-8859-5": -4.0,
    "windows-1255": -1.0,
}
CANDIDATES: Final = tuple(
    Candidate(name, codec, score, _RARITY.get(name, 0.0)) for name, codec, scores in _SETS for score in scores
)

_ALPHABETS: Final = (*letters.CYRILLIC, letters.GREEK, letters.HEBREW, letters.ARABIC, letters.THAI)
_EAST_ASIAN: Final = (letters.SIMPLIFIED, letters.TRADITIONAL, letters.HANGUL, _JAPANESE)
_FREQUENT: Final = frozenset[str]().union(
    *_ALPHABETS, *_EAST_ASIAN, *letters.WESTERN, *letters.CENTRAL, *letters.BALTIC, letters.TURKISH
)


def reads_as_text(text: str) -> float:
    """Return how well a text that was decoded as UTF-16 or UTF-32 reads, at most 1; 0 for what does
    not read, as when its bytes were taken in the wrong order."""
    sample = text[:SAMPLE_CHARS]
    total = 0.0
    for sign in sample:
        if sign in "\t\n\r\f" or " " <= sign <= "~" or sign.lower() in _FREQUENT:
            total += 1
        elif not sign.isprintable() and sign not in "\u00a0\u00ad\u200e\u200f\u3000":
            return 0.0
        elif sign > "\u2000" or (sign.isalpha() and sign > "\u0370"):
            total += 0.5
    # A single character proves nothing.
    return total / len(sample) if len(text) > 1 and total > len(sample) / 2 else 0.0
