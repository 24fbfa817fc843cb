"""Render replies in WhatsApp's markup."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from gateway.channels.leaf_markup import write_leaf
from gateway.platform.protocol import Piece
from gateway.text.layout import Dress, lay_out
from gateway.text.leaves import Leaf, Link
from gateway.text.marks import JOINT, Pen, break_marks, fenceless
from gateway.text.measure import utf16
from gateway.text.pages import PageFormat, paginate
from gateway.text.plain import plain, quoted_lines
from gateway.text.tables import flat
from gateway.text.tree import read

TEXT_LIMIT: Final = 4000
"""UTF-16 code units; WhatsApp accepts 4096 characters."""

_WOULD_QUOTE: Final = re.compile(r"^(?=>)", re.MULTILINE)
_FENCE: Final = "```"


def render_reply(markdown: str) -> list[Piece]:
    """Render a reply in WhatsApp's markup. Links have no labels there: the address follows the
    label. Post it with `preview_url` off, or WhatsApp fetches the links."""
    return paginate(flat(read(markdown)), _PAGE)


def _escape_text(text: str) -> str:
    return _WOULD_QUOTE.sub(JOINT, break_marks(text))


def _code_block(text: str) -> str:
    return f"{_FENCE}{fenceless(text)}{_FENCE}"


def _write_link(link: Link, label: str) -> tuple[str, str]:
    return link.shown_address if link.bare else _escape_text(label), link.address_behind


def _leaf_markup(leaf: Leaf) -> str:
    return write_leaf(leaf, _PEN, lambda block: _code_block(block.text))


def _layout_piece(leaves: Sequence[Leaf]) -> Piece:
    return Piece(lay_out(leaves, _DRESS), plain(leaves))


def _piece_sizes(piece: Piece) -> tuple[int, ...]:
    return utf16(piece.plain), utf16(piece.text)


_PEN: Final = Pen(
    marks={"bold": "*", "italic": "_", "strike": "~"}, text=_escape_text, code=_code_block, link=_write_link
)
_DRESS: Final = Dress(body=_leaf_markup, quote=quoted_lines(">"))
_PAGE: Final = PageFormat(show=_layout_piece, size=_piece_sizes, limits=(TEXT_LIMIT, TEXT_LIMIT), gap=(2, 2))
