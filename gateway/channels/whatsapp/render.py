"""Render replies in WhatsApp's markup."""

from __future__ import annotations

import re
from typing import Final

from gateway.platform.protocol import Piece
from gateway.text.characters import utf16
from gateway.text.layout import Dress, quoted_lines
from gateway.text.leaves import Link
from gateway.text.marks import JOINT, Pen, break_marks, fenceless
from gateway.text.pages import PageFormat, both, render

TEXT_LIMIT: Final = 4000
"""UTF-16 code units; WhatsApp accepts 4096 characters."""

_WOULD_QUOTE: Final = re.compile(r"^(?=>)", re.MULTILINE)


def render_reply(markdown: str) -> list[Piece]:
    """Render a reply in WhatsApp's markup. Links have no labels there: the address follows the
    label. Post it with `preview_url` off, or WhatsApp fetches the links."""
    return render(markdown, _PAGE)


def _escape_text(text: str) -> str:
    return _WOULD_QUOTE.sub(JOINT, break_marks(text))


def _code_block(text: str) -> str:
    return f"```{fenceless(text)}```"


def _write_link(link: Link, label: str) -> tuple[str, str]:
    return link.shown_address if link.bare else _escape_text(label), link.address_behind


_PEN: Final = Pen(
    marks={"bold": "*", "italic": "_", "strike": "~"},
    text=_escape_text,
    code=_code_block,
    block=lambda leaf: _code_block(leaf.text),
    link=_write_link,
)
_DRESS: Final = Dress(body=_PEN.write_leaf, quote=quoted_lines(">"))
_PAGE: Final = PageFormat(write=_DRESS.lay_out, size=both(utf16), limits=(TEXT_LIMIT, TEXT_LIMIT))
