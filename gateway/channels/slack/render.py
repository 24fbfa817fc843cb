"""Replies in Slack's mrkdwn, for the field `text` of chat.postMessage and chat.update.

`text` and not `markdown_text` or blocks: both calls take it, it cannot name anybody once `&`, `<`
and `>` are escaped, and what is posted is what conversations.history tells again when a post is
looked for.
"""

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

TEXT_LIMIT: Final = 3500
"""UTF-16 code units, escaped. chat.update takes 4000, chat.postMessage more."""

_ESCAPES: Final = {ord("&"): "&amp;", ord("<"): "&lt;", ord(">"): "&gt;"}
_WOULD_QUOTE: Final = re.compile(r"^(?=&gt;)", re.MULTILINE)
_FENCE: Final = "```"


def render(markdown: str) -> list[Piece]:
    """A reply as mrkdwn. The plain text is escaped too: Slack reads `<!channel>` in every message.
    Links have to be posted with `unfurl_links` and `unfurl_media` off: else Slack would fetch
    them."""
    return paginate(flat(read(markdown)), _PAGE)


def escaped(text: str) -> str:
    """Text that names nobody and links to nothing."""
    return text.translate(_ESCAPES)


def _text(text: str) -> str:
    return _WOULD_QUOTE.sub(JOINT, taken_apart(escaped(text)))


def _code(text: str) -> str:
    return _text(text) if "`" in text else f"`{escaped(text)}`"


def _link(link: Link, label: str) -> tuple[str, str]:
    shown = "" if label == link.address else "|" + escaped(label).replace("|", "¦")
    return f"<{escaped(link.address)}{shown}>", escaped(link.host_behind)


def _body(leaf: Leaf) -> str:
    match leaf.kind:
        case "code":
            return f"{_FENCE}\n{fenceless(escaped(leaf.text))}\n{_FENCE}"
        case "rule":
            return RULE
        case "heading":
            return _PEN.write(bold(leaf.runs))
        case _:
            return _PEN.write(leaf.runs)


def _show(leaves: Sequence[Leaf]) -> Piece:
    return Piece(lay_out(leaves, _DRESS), escaped(plain(leaves)))


def _size(piece: Piece) -> tuple[int, ...]:
    return utf16(piece.plain), utf16(piece.text)


_PEN: Final = Pen(marks={"bold": "*", "italic": "_", "strike": "~"}, text=_text, code=_code, link=_link)
_DRESS: Final = Dress(body=_body, quote=quoted_lines("&gt;"))
_PAGE: Final = Page(show=_show, size=_size, limits=(TEXT_LIMIT, TEXT_LIMIT), gap=(2, 2))
