"""Replies as the HTML that Matrix allows in `formatted_body` (client-server API, m.room.message
msgtypes)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from gateway.platform.protocol import Piece
from gateway.text.html import Tags, to_html
from gateway.text.leaves import Leaf
from gateway.text.measure import json_bytes
from gateway.text.pages import Page, paginate
from gateway.text.plain import plain
from gateway.text.tree import read

EVENT_LIMIT: Final = 20_000
"""Bytes of `body` and `formatted_body` together, as JSON. An event has 65,536; an edit holds both
twice, and encryption makes four bytes of three."""


def render(markdown: str) -> list[Piece]:
    """A reply as HTML, and as plain text for `body`. It names people as soon as `m.mentions` is
    missing: post it with an empty one."""
    return paginate(read(markdown), _PAGE)


def _show(leaves: Sequence[Leaf]) -> Piece:
    return Piece(to_html(leaves, _TAGS), plain(leaves))


def _size(piece: Piece) -> tuple[int, ...]:
    text = json_bytes(piece.plain)
    return text, text + json_bytes(piece.text)


_TAGS: Final = Tags()
_PAGE: Final = Page(show=_show, size=_size, limits=(EVENT_LIMIT, EVENT_LIMIT), gap=(4, 6))
