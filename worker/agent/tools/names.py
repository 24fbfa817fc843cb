"""The tool that a model means by a name."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Final

_PARTS: Final = re.compile(r"[^A-Za-z0-9_-]+")
# Nobody puts a name among words with blanks alone
_WRAPPING: Final = re.compile(r"[^A-Za-z0-9_\s-]")
_SEPARATORS: Final = re.compile(r"[_-]")


def match_tool(name: str, tools: Collection[str]) -> str:
    """Return the one tool that fits a name: the same name, the same but for case, blanks, dashes
    and underscores, or the same as one part of it, as in `functions.calculate`,
    `default_api:calculate` or `calculate<|channel|>json`. Return the name as it is if none fits, or
    several do."""
    if name in tools:
        return name
    parts = [part for part in _PARTS.split(name) if part]
    fitting: set[str] = set()
    wrapped = set(parts) if _WRAPPING.search(name) else set()
    for candidates in ({"".join(parts)}, wrapped):
        forms = {_plain(one) for one in candidates}
        fitting = {tool for tool in tools if _plain(tool) in forms}
        if fitting:
            break
    return fitting.pop() if len(fitting) == 1 else name


def _plain(name: str) -> str:
    return _SEPARATORS.sub("", name).lower()
