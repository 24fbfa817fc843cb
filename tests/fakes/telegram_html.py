"""HTML as Telegram's Bot API reads it ("Formatting options")."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import Final

TAGS: Final = {
    "b",
    "strong",
    "i",
    "em",
    "u",
    "ins",
    "s",
    "strike",
    "del",
    "code",
    "pre",
    "a",
    "blockquote",
    "tg-spoiler",
}


class CannotParse(Exception):
    """The HTML of a message is none that Telegram reads."""


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.text, self.open, self.tags = "", list[str](), 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in TAGS:
            raise CannotParse(f'Unsupported start tag "{tag}" at byte offset {self.getpos()[1]}')
        self.open.append(tag)
        self.tags += 1

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open.pop() != tag:
            raise CannotParse(f"Unmatched end tag at byte offset {self.getpos()[1]}")

    def handle_data(self, data: str) -> None:
        self.text += data


def read_html(html: str) -> tuple[str, bool]:
    """The text of a message in HTML, and whether there was markup. Raises CannotParse."""
    if re.search(r"&(?!(?:lt|gt|amp|quot|#\d+|#x[0-9a-fA-F]+);)", html):
        raise CannotParse("Unknown entity")
    reader = _Reader()
    reader.feed(html)
    reader.close()
    if reader.open:
        raise CannotParse(f'Can\'t find end tag corresponding to start tag "{reader.open[-1]}"')
    return reader.text, reader.tags > 0
