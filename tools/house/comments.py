"""Comments of Python and Lua, and those that switch the formatter off."""

from __future__ import annotations

import io
import re
import tokenize
from functools import cache
from typing import Final

from tools.house.counting import Count, count_of
from tools.house.files import House, Source, by_suffix
from tools.house.lua import read_comments as read_lua_comments

_SKIP: Final = re.compile(r"#\s*fmt:\s*(?:skip|off)\b")


def python_comment_lines(house: House) -> Count:
    """Count the lines of Python that are a comment as a whole."""
    return _count(house.python, at_ends=False)


def python_line_ends(house: House) -> Count:
    """Count the lines of Python that end in a comment."""
    return _count(house.python, at_ends=True)


def lua_comment_lines(house: House) -> Count:
    """Count the lines of Lua that are a comment as a whole."""
    return _count(by_suffix(house.product, ".lua"), at_ends=False)


def lua_line_ends(house: House) -> Count:
    """Count the lines of Lua that end in a comment."""
    return _count(by_suffix(house.product, ".lua"), at_ends=True)


def formatter_skips(house: House) -> Count:
    """List the places in Python that the formatter must leave as they are."""
    return count_of(
        [
            f"{source.path}:{line}"
            for source in house.python
            for line, comment in read_comments(source)
            if _SKIP.match(comment)
        ]
    )


@cache
def read_comments(source: Source) -> list[tuple[int, str]]:
    """Return line and text of each comment of a Python or Lua file."""
    if source.path.suffix == ".lua":
        return list(read_lua_comments(source.text))
    if "#" not in source.text:
        return []
    return [
        (token.start[0], token.string)
        for token in tokenize.generate_tokens(io.StringIO(source.text).readline)
        if token.type == tokenize.COMMENT
    ]


def _count(sources: list[Source], *, at_ends: bool) -> Count:
    """Count lines of comments; a block comment counts once for each line that it covers."""
    return Count(
        sum(
            comment.count("\n") + 1
            for source in sources
            for line, comment in read_comments(source)
            if at_ends != source.lines[line - 1].lstrip().startswith(("#", "--"))
        )
    )
