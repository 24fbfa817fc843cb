"""Replies as mail: the inside of an HTML body, and the same as text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from gateway.platform.protocol import Piece
from gateway.text.html import Tags, to_html
from gateway.text.leaves import Leaf
from gateway.text.measure import utf8
from gateway.text.pages import Page, paginate
from gateway.text.plain import plain
from gateway.text.tree import read

SIZE_LIMIT: Final = 1_000_000
"""Bytes of either part. What is longer becomes several mails."""


def render(markdown: str) -> list[Piece]:
    """A reply as HTML, without anything that is loaded from elsewhere, and as plain text. A
    paragraph is one line there, however long: quoted-printable breaks it for the way."""
    return paginate(read(markdown), _PAGE)


def _show(leaves: Sequence[Leaf]) -> Piece:
    return Piece(to_html(leaves, _TAGS), plain(leaves))


def _size(piece: Piece) -> tuple[int, ...]:
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
_PAGE: Final = Page(show=_show, size=_size, limits=(SIZE_LIMIT, SIZE_LIMIT), gap=(4, 6))
