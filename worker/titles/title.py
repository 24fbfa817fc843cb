"""A title in what a model replied: one line of plain text."""

from __future__ import annotations

import re
from typing import Final

from shared.messages.untrusted import one_line, strip_hidden
from worker.agent.model.think import strip_think

TITLE_CHARS: Final = 60
_READ_CHARS: Final = 2000  # of a reply: a title is short, and a reply has no limit

_LINK: Final = re.compile(r"!?\[([^\[\]]*)\]\([^()\s]*\)")
_EMPHASIS: Final = re.compile(r"[*`]+|~~|(?<!\w)_+|_+(?!\w)")
# What stands in front: headings, quotes, list marks; `/`, so that no title looks like a command.
_FRONT: Final = re.compile(r"^[\s#>/+\-\u2022]+")
_LABEL: Final = re.compile(r"^(?:chat |conversation )?title\s*[:\uff1a]\s*", re.IGNORECASE)
_QUOTES: Final = "\"'\u00ab\u00bb\u2018\u2019\u201a\u201c\u201d\u201e\u2039\u203a\u300c\u300d\u300e\u300f"


def clean_title(reply: str) -> str:
    """Return the title in a reply: its first line with a letter or digit, without Markdown, quotes
    around it, hidden characters and a full stop, at most TITLE_CHARS long; "" if there is none."""
    for line in strip_hidden(strip_think(reply[:_READ_CHARS])).splitlines():
        title = _clean_line(line)
        # "Here is a title:" introduces one.
        if any(map(str.isalnum, title)) and not title.endswith((":", "\uff1a")):
            return _cut(title)
    return ""


def _clean_line(line: str) -> str:
    text = _EMPHASIS.sub("", _LINK.sub(r"\1", line))
    text = _LABEL.sub("", _FRONT.sub("", text))
    # Once more: a quote may stand before or after a mark.
    text = _FRONT.sub("", text.strip().strip(_QUOTES))
    text = text.strip().removesuffix(".") if not text.endswith("..") else text
    return one_line(text.strip().strip(_QUOTES), _READ_CHARS)


def _cut(title: str) -> str:
    """Cut a long title at a space, if there is one near."""
    if len(title) <= TITLE_CHARS:
        return title
    head = title[: TITLE_CHARS - 1]
    words, _, rest = head.rpartition(" ")
    return f"{words if words and len(rest) <= 20 else head}\u2026"
