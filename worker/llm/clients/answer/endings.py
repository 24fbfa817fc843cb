"""How an answer ended, in the words of all providers: `finish_reason` and its kin."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Final

STOP: Final = "stop"
TOOL_CALLS: Final = "tool_calls"
LENGTH: Final = "length"
CONTENT_FILTER: Final = "content_filter"
FAULTS: Final = ("overloaded", "timeout", "connection", "bad_reply")
"""Endings that are faults of the provider; each is the kind of ModelError."""

_WORDS: Final[Mapping[str, str]] = {
    "stop": STOP,
    "stopsequence": STOP,
    "endturn": STOP,
    "eos": STOP,
    "eostoken": STOP,
    "eosfound": STOP,
    "complete": STOP,
    "completed": STOP,
    "finish": STOP,
    "finished": STOP,
    "done": STOP,
    "success": STOP,
    "normal": STOP,
    "pauseturn": LENGTH,  # a long turn of Anthropic's that asks to be continued
    "incomplete": LENGTH,
    "limit": LENGTH,
    "maxtokens": LENGTH,
    "modelcontextwindowexceeded": LENGTH,
    "refusal": CONTENT_FILTER,
    "recitation": CONTENT_FILTER,
    "spii": CONTENT_FILTER,
    "language": CONTENT_FILTER,
    "errortoxic": CONTENT_FILTER,
    "errorlimit": LENGTH,
    "guardrailintervened": CONTENT_FILTER,
    "malformedfunctioncall": "bad_reply",
    "unexpectedtoolcall": "bad_reply",
    "toomanytoolcalls": "bad_reply",
}
"""Words of providers, letters alone: `max_tokens`, `MAX_TOKENS` and `maxTokens` are one."""

_STEMS: Final = (
    ("bad_reply", ("malformed", "invalidtool", "invalidfunction")),
    (
        CONTENT_FILTER,
        ("filter", "safety", "sensitiv", "moderat", "prohibit", "blocklist", "blocked", "toxic"),
    ),
    (CONTENT_FILTER, ("guardrail", "violat", "censor", "unsafe", "harm")),
    (
        "overloaded",
        ("resource", "overload", "capacity", "busy", "unavailable", "preempt", "throttl"),
    ),
    ("timeout", ("timeout", "timedout", "deadline")),
    (
        "connection",
        ("error", "fail", "abort", "cancel", "interrupt", "exception", "network", "disconnect"),
    ),
    (
        LENGTH,
        (
            "length",
            "maxtoken",
            "maxoutput",
            "maxnewtoken",
            "tokenlimit",
            "truncat",
            "contextwindow",
        ),
    ),
    (TOOL_CALLS, ("tool", "function")),
)
"""Parts of words that nobody has listed, the most telling first."""

# It still goes on
_NOT_YET: Final = frozenset({"", "null", "none", "undefined", "unknown", "unspecified"})
_RANK: Final = (*FAULTS, CONTENT_FILTER, LENGTH, TOOL_CALLS)
_PREFIX: Final = re.compile(r"^finish_?reason[._: ]*", re.IGNORECASE)
_NO_LETTER: Final = re.compile(r"[^a-z]")
_AT_THE_END: Final = re.compile(r"[.!?…。！？)\]}>»”\"'`*_~|:;]\s*$")


@lru_cache(maxsize=256)
def ending_of(word: str) -> str:
    """Return the ending that a provider's word means: `stop`, `tool_calls`, `length`,
    `content_filter` or a kind of fault; `""` if it means that the answer goes on; the word itself
    if nobody knows it."""
    letters = _NO_LETTER.sub("", _PREFIX.sub("", word.strip()).lower())
    if letters in _NOT_YET:
        return ""
    if letters in _WORDS:
        return _WORDS[letters]
    return next((ending for ending, stems in _STEMS if any(stem in letters for stem in stems)), word.strip())


def strongest(first: str, second: str) -> str:
    """Return the one of two endings of an answer that counts: `stop` may follow any other."""
    if not first:
        return second
    return next((one for one in _RANK if one in (first, second)), second or first)


def looks_ended(text: str) -> bool:
    """Return whether a text ends as texts do, and not within a word, a sentence or a block of
    code."""
    return bool(_AT_THE_END.search(text)) and text.count("```") % 2 == 0
