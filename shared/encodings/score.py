"""How likely bytes are a text of one language in one character set.

A score is a logarithm (base 2) of a likelihood. Every set explains the same bytes, so the sums can be
compared, also between sets of one byte and of two bytes a character. The numbers are rough: letters
that are frequent in a language, as against rare characters and impossible neighbours, decide."""

from __future__ import annotations

import codecs
from collections.abc import Callable
from math import log2
from typing import Final

import msgspec

SAMPLE_CHARS: Final = 6000
LEAST_PER_BYTE: Final = -8.0
"""Mean of the bytes beyond ASCII, below which they are not a text in this set."""

_ASCII: Final = -4.0
_SIGN: Final = -6.0
_OTHER_LETTER: Final = -9.0
_OTHER: Final = -12.0
_IDEOGRAPH: Final = -13.5
_HALF_KANA: Final = -6.5  # a single byte, in data of old Japanese programs
_RARE_IDEOGRAPH: Final = -20.0
_UNUSUAL: Final = -2.0  # a capital, a letter alone, two letters beyond ASCII in a row
_IMPOSSIBLE: Final = -8.0  # a capital in a word, two alphabets in a word
_SIGNS: Final = frozenset("«»“”„‘’‚‹›–—…•€£¥°§·©®™№²³½¼±×÷¿¡ºª´\u00a0\u00ad\u200e\u200f")

Score = Callable[[str, int], float]
"""Returns the score of the character at a place of a text; it is beyond ASCII."""


class Candidate(msgspec.Struct, frozen=True):
    """A language in a character set: the name of the set that people know, Python's codec, and
    what is added to each score of a set that is rarely used."""

    name: str
    codec: str
    score: Score
    rarity: float = 0.0

    def score_of(self, sample: bytes) -> float:
        """Return the score of the sample, whose end may cut a character in two; minus infinity for
        bytes that are not a text in this set."""
        try:
            text = codecs.getincrementaldecoder(self.codec)("strict").decode(sample)
        except UnicodeDecodeError:
            return -float("inf")
        high = [at for at, sign in enumerate(text) if sign > "\x7f"]
        if not high:
            return -float("inf")
        total = self.rarity + sum(self.score(text, at) for at in high)
        high_bytes = len(sample) - (len(text) - len(high))
        if total < LEAST_PER_BYTE * high_bytes:
            return -float("inf")
        return total + _ASCII * (len(text) - len(high))


def ideographs(codec: str, frequent: frozenset[str], *rows: tuple[int, int]) -> Score:
    """Score an East Asian set. The lead bytes in `rows` hold what its standard calls common."""
    usual = log2(0.7 / len(frequent))

    def score(text: str, at: int) -> float:
        sign = text[at]
        alone = 0.0 if _is_wide(text[at - 1 : at]) or _is_wide(text[at + 1 : at + 2]) else _UNUSUAL
        if sign in frequent:
            return usual + alone
        if "\u3000" <= sign <= "\u303f" or "\uff00" <= sign <= "\uff60" or sign in _SIGNS:
            return _OTHER_LETTER
        if "\uff61" <= sign <= "\uff9f":
            return _HALF_KANA
        coded = sign.encode(codec)
        common = len(coded) == 2 and any(low <= coded[0] <= high for low, high in rows)
        # In the sets made of ISO 2022 the second byte of what is common is beyond ASCII, too.
        common = common and (coded[1] >= 0xA1 or codec in ("cp932", "big5hkscs"))
        return (_IDEOGRAPH if common else _RARE_IDEOGRAPH) + alone

    return score


def alphabet(frequent: frozenset[str], first: str, last: str) -> Score:
    """Score a language of another alphabet than Latin, whose letters are `first` to `last`."""
    usual = log2(0.8 / len(frequent))
    unusual = log2(0.2 / 30)

    def score(text: str, at: int) -> float:
        sign = text[at]
        if not first <= sign <= last:
            return _SIGN if sign in _SIGNS else _OTHER
        before = text[at - 1 : at]
        after = text[at + 1 : at + 2]
        found = usual if sign.lower() in frequent else unusual
        if _is_plain(before) or _is_plain(after):
            return found + _IMPOSSIBLE
        if not before.isalpha() and not after.isalpha():
            found += 2 * _UNUSUAL
        return found + _case(before, sign)

    return score


def latin(frequent: frozenset[str]) -> Score:
    """Score a language of Latin letters: those beyond ASCII stand singly among plain ones."""
    usual = log2(1 / len(frequent))

    def score(text: str, at: int) -> float:
        sign = text[at]
        before = text[at - 1 : at]
        after = text[at + 1 : at + 2]
        if not sign.isalpha() or sign in "ªº":
            within = _is_plain(before) and _is_plain(after) and sign != "’"
            return (_SIGN if sign in _SIGNS else _OTHER) + (_IMPOSSIBLE if within else 0)
        found = usual if sign in frequent or sign.lower() in frequent else _OTHER_LETTER
        if not _is_plain(before) and not _is_plain(after):
            found += _UNUSUAL
        return found + _case(before, sign)

    return score


def _case(before: str, sign: str) -> float:
    if not sign.isupper():
        return 0.0
    if before.isupper():
        return _UNUSUAL / 10  # a word in capitals
    return _IMPOSSIBLE if before.islower() else _UNUSUAL / 2


def _is_plain(sign: str) -> bool:
    return sign.isascii() and sign.isalpha()


def _is_wide(sign: str) -> bool:
    return sign > "\u2e7f"
