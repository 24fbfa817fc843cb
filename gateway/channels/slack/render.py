"""Render replies as Slack mrkdwn, for the field `text` of chat.postMessage and chat.update.

We use `text` rather than `markdown_text` or blocks: both calls accept it, it cannot mention anyone
once `&`, `<` and `>` are escaped, and conversations.history returns exactly what was posted.
"""

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

TEXT_LIMIT: Final = 3500
"""UTF-16 code units after escaping. chat.update accepts 4000, chat.postMessage more."""

_ESCAPES: Final = {ord("&"): "&amp;", ord("<"): "&lt;", ord(">"): "&gt;"}
_WOULD_QUOTE: Final = re.compile(r"^(?=&gt;)", re.MULTILINE)
_FENCE: Final = "```"


def render_reply(markdown: str) -> list[Piece]:
    """Render a reply as mrkdwn. The plain text is escaped too: Slack interprets `<!channel>` in
    every message. Post it with `unfurl_links` and `unfurl_media` off, or Slack fetches the links.
    """
    return paginate(flat(read(markdown)), _PAGE)


def escape_mrkdwn(text: str) -> str:
    """Escape a text so that it mentions nobody and links nowhere."""
    return text.translate(_ESCAPES)


def _escape_text(text: str) -> str:
    return _WOULD_QUOTE.sub(JOINT, break_marks(escape_mrkdwn(text)))


def _inline_code(text: str) -> str:
    return _escape_text(text) if "`" in text else f"`{escape_mrkdwn(text)}`"


def _write_link(link: Link, label: str) -> tuple[str, str]:
    shown = "" if label == link.address else "|" + escape_mrkdwn(label).replace("|", "¦")
    return f"<{escape_mrkdwn(link.address)}{shown}>", escape_mrkdwn(link.host_behind)


def _code_block(leaf: Leaf) -> str:
    return f"{_FENCE}\n{fenceless(escape_mrkdwn(leaf.text))}\n{_FENCE}"


def _leaf_mrkdwn(leaf: Leaf) -> str:
    return write_leaf(leaf, _PEN, _code_block)


def _layout_piece(leaves: Sequence[Leaf]) -> Piece:
    return Piece(lay_out(leaves, _DRESS), escape_mrkdwn(plain(leaves)))


def _piece_sizes(piece: Piece) -> tuple[int, ...]:
    return utf16(piece.plain), utf16(piece.text)


_PEN: Final = Pen(
    marks={"bold": "*", "italic": "_", "strike": "~"}, text=_escape_text, code=_inline_code, link=_write_link
)
_DRESS: Final = Dress(body=_leaf_mrkdwn, quote=quoted_lines("&gt;"))
_PAGE: Final = PageFormat(show=_layout_piece, size=_piece_sizes, limits=(TEXT_LIMIT, TEXT_LIMIT), gap=(2, 2))
