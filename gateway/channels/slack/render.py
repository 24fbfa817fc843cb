"""Render replies as Slack mrkdwn, for the field `text` of chat.postMessage and chat.update.

We use `text` rather than `markdown_text` or blocks: both calls accept it, it cannot mention anyone
once `&`, `<` and `>` are escaped, and conversations.history returns exactly what was posted.
"""

from __future__ import annotations

import re
from typing import Final

from gateway.platform.protocol import Piece
from gateway.text.characters import utf16
from gateway.text.layout import Dress, quoted_lines
from gateway.text.leaves import Link
from gateway.text.marks import JOINT, Pen, break_marks, fenced
from gateway.text.pages import PageFormat, both, render

TEXT_LIMIT: Final = 3500
"""UTF-16 code units after escaping. chat.update accepts 4000, chat.postMessage more."""

_ESCAPES: Final = {ord("&"): "&amp;", ord("<"): "&lt;", ord(">"): "&gt;"}
_WOULD_QUOTE: Final = re.compile(r"^(?=&gt;)", re.MULTILINE)


def render_reply(markdown: str) -> list[Piece]:
    """Render a reply as mrkdwn. The plain text is escaped too: Slack reads `<!channel>` in every
    message. Post it with `unfurl_links` and `unfurl_media` off, or Slack fetches the links."""
    return render(markdown, _PAGE)


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


_PEN: Final = Pen(
    marks={"bold": "*", "italic": "_", "strike": "~"},
    text=_escape_text,
    code=_inline_code,
    block=lambda leaf: fenced(escape_mrkdwn(leaf.text)),
    link=_write_link,
)
_DRESS: Final = Dress(body=_PEN.write_leaf, quote=quoted_lines("&gt;"))
_PAGE: Final = PageFormat(
    write=_DRESS.lay_out,
    guard=escape_mrkdwn,
    size=both(utf16),
    limits=(TEXT_LIMIT, TEXT_LIMIT),
    gap=(2, 2),
)
