"""Render replies as mail: the inside of an HTML body, and the plain text."""

from __future__ import annotations

from typing import Final

from gateway.platform.protocol import Piece
from gateway.text.characters import utf8
from gateway.text.html import Tags
from gateway.text.pages import PageFormat, both, render

SIZE_LIMIT: Final = 1_000_000
"""Bytes of either part. A longer reply becomes several mails."""


def render_reply(markdown: str) -> list[Piece]:
    """Render a reply as HTML without external resources, and as plain text. A paragraph is one
    line, however long: quoted-printable wraps it in transit."""
    return render(markdown, _PAGE)


_CODE: Final = ' style="background:#f4f4f4;padding:8px;white-space:pre-wrap"'
_TAGS: Final = Tags(
    extra={
        "pre": _CODE,
        "blockquote": ' style="border-left:3px solid #ccc;margin-left:0;padding-left:12px"',
        "table": ' border="1" cellpadding="4" style="border-collapse:collapse"',
    },
    align=True,
)
_PAGE: Final = PageFormat(
    write=_TAGS.to_html, tables=True, size=both(utf8), limits=(SIZE_LIMIT, SIZE_LIMIT), gap=(4, 6)
)
