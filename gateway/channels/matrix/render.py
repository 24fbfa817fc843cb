"""Render replies as the HTML that Matrix allows in `formatted_body` (client-server API,
m.room.message msgtypes)."""

from __future__ import annotations

from typing import Final

from gateway.platform.protocol import Piece
from gateway.text.characters import json_bytes
from gateway.text.html import Tags
from gateway.text.pages import PageFormat, render

EVENT_LIMIT: Final = 20_000
"""Bytes of `body` and `formatted_body` together, as JSON. An event may have 65,536; an edit holds
both twice, and encryption adds a third."""


def render_reply(markdown: str) -> list[Piece]:
    """Render a reply as HTML, with plain text for `body`. Without an `m.mentions` clients guess
    mentions from the text: post it with an empty one."""
    return render(markdown, _PAGE)


def _piece_sizes(piece: Piece) -> tuple[int, ...]:
    text = json_bytes(piece.plain)
    return text, text + json_bytes(piece.text)


_PAGE: Final = PageFormat(
    write=Tags().to_html,
    tables=True,
    size=_piece_sizes,
    limits=(EVENT_LIMIT, EVENT_LIMIT),
    gap=(4, 6),
)
