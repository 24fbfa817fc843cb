"""Render replies as mail: the inside of an HTML body, and the plain text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from gateway.platform.protocol import Piece
from gateway.text.html import Tags, to_html
from gateway.text.leaves import Leaf
from gateway.text.measure import utf8
from gateway.text.pages import PageFormat, paginate
from gateway.text.plain import plain
from gateway.text.tree import read

SIZE_LIMIT: Final = 1_000_000
"""Bytes of either part. A longer reply becomes several mails."""


def render_reply(markdown: str) -> list[Piece]:
    """Render a reply as HTML without external resources, and as plain text. A paragraph is one
    line, however long: quoted-printable wraps it in transit."""
    return paginate(read(markdown), _PAGE)


def _layout_piece(leaves: Sequence[Leaf]) -> Piece:
    return Piece(to_html(leaves, _TAGS), plain(leaves))


def _piece_sizes(piece: Piece) -> tuple[int, ...]:
    return utf8(piece.plain), utf8(piece.text)


_CODE: Final = ' style="background:#f4f4f4;padding:8px;white-space:pre-wrap"'
_TAGS: Final = Tags(
    extra={
        "pre": _CODE,
        "blockquote": ' style="border-left:3px solid #ccc;margin-left:0;padding-left:12px"',
        "table": ' border="1" cellpadding="4" style="border-collapse:collapse"',
    },
    align=True,
)
_PAGE: Final = PageFormat(show=_layout_piece, size=_piece_sizes, limits=(SIZE_LIMIT, SIZE_LIMIT), gap=(4, 6))
