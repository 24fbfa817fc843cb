"""Replies in WhatsApp's markup."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from gateway.platform.protocol import Piece
from gateway.text.layout import Dress, lay_out
from gateway.text.leaves import Leaf, Link, bold
from gateway.text.marks import JOINT, Pen, fenceless, taken_apart
from gateway.text.measure import utf16
from gateway.text.pages import Page, paginate
from gateway.text.plain import RULE, plain, quoted_lines
from gateway.text.tables import flat
from gateway.text.tree import read

TEXT_LIMIT: Final = 4000
"""UTF-16 code units; WhatsApp takes 4096 characters."""

_WOULD_QUOTE: Final = re.compile(r"^(?=>)", re.MULTILINE)
_FENCE: Final = "```"


def render(markdown: str) -> list[Piece]:
    """A reply in WhatsApp's markup. A link has no label there: its address follows what would have
    been one. It has to be posted with `preview_url` off: else WhatsApp would fetch it."""
    return paginate(flat(read(markdown)), _PAGE)


def _text(text: str) -> str:
    return _WOULD_QUOTE.sub(JOINT, taken_apart(text))


def _code(text: str) -> str:
    return f"{_FENCE}{fenceless(text)}{_FENCE}"


def _link(link: Link, label: str) -> tuple[str, str]:
    return link.shown_address if link.bare else _text(label), link.address_behind


def _body(leaf: Leaf) -> str:
    match leaf.kind:
        case "code":
            return _code(leaf.text)
        case "rule":
            return RULE
        case "heading":
            return _PEN.write(bold(leaf.runs))
        case _:
            return _PEN.write(leaf.runs)


def _show(leaves: Sequence[Leaf]) -> Piece:
    return Piece(lay_out(leaves, _DRESS), plain(leaves))


def _size(piece: Piece) -> tuple[int, ...]:
    return utf16(piece.plain), utf16(piece.text)


_PEN: Final = Pen(marks={"bold": "*", "italic": "_", "strike": "~"}, text=_text, code=_code, link=_link)
_DRESS: Final = Dress(body=_body, quote=quoted_lines(">"))
_PAGE: Final = Page(show=_show, size=_size, limits=(TEXT_LIMIT, TEXT_LIMIT), gap=(2, 2))
