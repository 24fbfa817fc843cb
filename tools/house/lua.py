"""The words and comments of Lua source."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

_TOKEN: Final = re.compile(
    r"""
    (?P<comment> --\[(?P<c>=*)\[.*?\](?P=c)\] | --[^\n]* )
  | (?P<string>  "(?:\\.|[^"\\\n])*" | '(?:\\.|[^'\\\n])*' | \[(?P<s>=*)\[.*?\](?P=s)\] )
  | (?P<number>  \d[\w.]* )
  | (?P<name>    [A-Za-z_]\w* )
    """,
    re.VERBOSE | re.DOTALL,
)


def read_words(text: str) -> Iterator[tuple[int, str]]:
    """Yield line and text of each identifier and keyword outside strings and comments."""
    yield from _tokens(text, "name")


def read_comments(text: str) -> Iterator[tuple[int, str]]:
    """Yield line and text of each comment; a block comment is yielded as a whole."""
    yield from _tokens(text, "comment")


def _tokens(text: str, kind: str) -> Iterator[tuple[int, str]]:
    line = 1
    end = 0
    for match in _TOKEN.finditer(text):
        line += text.count("\n", end, match.start())
        end = match.start()
        if match[kind]:
            yield line, match[kind]
