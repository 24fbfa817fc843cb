"""Render replies as Telegram HTML (Bot API, "Formatting options")."""

from __future__ import annotations

import re
from typing import Final

from msgspec.structs import replace

from gateway.platform.protocol import Piece
from gateway.text.characters import utf8, utf16
from gateway.text.html import code_html, escaped, inline_html
from gateway.text.layout import RULE, Dress
from gateway.text.leaves import Leaf, Run, Style, bold
from gateway.text.pages import PageFormat, render

TEXT_LIMIT: Final = 4000  # UTF-16 code units after entities are parsed; Telegram accepts 4096
RAW_LIMIT: Final = 30_000  # bytes including tags; Telegram truncates at 35,000
ENTITIES_LIMIT: Final = 95  # tags per message; Telegram drops those after the hundredth, also links
_TAGS: Final[dict[Style, str]] = {"bold": "b", "italic": "i", "strike": "s"}
_TAG: Final = re.compile(r"<(/?)[^>]*>")
_ENTITY: Final = re.compile(r"&(?:lt|gt|amp|quot);")


def render_reply(markdown: str) -> list[Piece]:
    """Render a reply as Telegram's HTML: no entity or link inside code, no nested quotes."""
    return render(markdown, _PAGE)


def _leaf_html(leaf: Leaf) -> str:
    match leaf.kind:
        case "code":
            return f"<pre>{code_html(leaf) if leaf.language else escaped(leaf.text)}</pre>"
        case "rule":
            return RULE
        case kind:
            runs = [_link_without_code(run) for run in leaf.runs]
            return inline_html(bold(runs) if kind == "heading" else runs, _TAGS, "\n")


def _link_without_code(run: Run) -> Run:
    """Turn code that is a link into a plain link: Telegram allows no entity inside code."""
    return replace(run, code=False) if run.link is not None else run


def _piece_sizes(piece: Piece) -> tuple[int, ...]:
    tags = _TAG.findall(piece.text)
    parsed = _ENTITY.sub("&", _TAG.sub("", piece.text))
    return utf16(piece.plain), utf16(parsed), utf8(piece.text), tags.count("")


_DRESS: Final = Dress(body=_leaf_html, quote=lambda text: f"<blockquote>{text}</blockquote>")
_PAGE: Final = PageFormat(
    write=_DRESS.lay_out,
    size=_piece_sizes,
    limits=(TEXT_LIMIT, TEXT_LIMIT, RAW_LIMIT, ENTITIES_LIMIT),
    gap=(2, 2, 2, 0),
)
