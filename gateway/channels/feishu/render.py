"""Render replies in the Markdown of Feishu's cards, for the element `markdown` of a card (schema
2.0)."""

from __future__ import annotations

import re
from typing import Final

import msgspec

from gateway.platform.protocol import Piece
from gateway.text.characters import json_bytes
from gateway.text.layout import Dress, quoted_lines
from gateway.text.leaves import Link
from gateway.text.marks import JOINT, Pen, fenced
from gateway.text.pages import PageFormat, both, render

TEXT_LIMIT: Final = 24_000
"""Bytes as a JSON string inside a JSON string. Feishu accepts requests with a card of 30 KB."""

_SPECIAL: Final = re.compile(r"[&<>*_~`\[\]\\$]")
_FIRST_IN_LINE: Final = re.compile(r"^([ \t]*)(?:([-+#=])|(\d+)([.)]))", re.MULTILINE)
_NAME: Final = re.compile(r"<(?=/?at\b)", re.IGNORECASE)


def render_reply(markdown: str) -> list[Piece]:
    """Render a reply for a card; its plain text is for a message of the type `text`. Neither
    mentions anyone."""
    return render(markdown, _PAGE)


def defuse_mentions(text: str) -> str:
    """Break every `<at ...>`."""
    return _NAME.sub(f"<{JOINT}", text)


def _entity(found: re.Match[str]) -> str:
    return f"&#{ord(found[0])};"


def _escape_text(text: str) -> str:
    """Escape a text with numeric entities: Feishu has no backslash escapes."""
    return _FIRST_IN_LINE.sub(_first_in_line, _SPECIAL.sub(_entity, text))


def _first_in_line(found: re.Match[str]) -> str:
    blank, mark, number, dot = found.groups()
    return f"{blank}&#{ord(mark)};" if mark else f"{blank}{number}&#{ord(dot)};"


def _inline_code(text: str) -> str:
    return _escape_text(text) if "`" in text else f"`{defuse_mentions(text)}`"


def _write_link(link: Link, label: str) -> tuple[str, str]:
    if link.is_mail:
        return _escape_text(label), _escape_text(link.address_behind)
    address = link.address.replace("(", "%28").replace(")", "%29")
    return f"[{_escape_text(label)}]({address})", _escape_text(link.host_behind)


def _nested_bytes(text: str) -> int:
    return json_bytes(msgspec.json.encode(text).decode())


_PEN: Final = Pen(
    marks={"bold": "**", "italic": "*", "strike": "~~"},
    text=_escape_text,
    code=_inline_code,
    block=lambda leaf: fenced(defuse_mentions(leaf.text), leaf.language),
    link=_write_link,
)
_DRESS: Final = Dress(body=_PEN.write_leaf, quote=quoted_lines(">"), bullet="- ", indent=4)
_PAGE: Final = PageFormat(
    write=_DRESS.lay_out,
    guard=defuse_mentions,
    size=both(_nested_bytes),
    limits=(TEXT_LIMIT, TEXT_LIMIT),
    gap=(4, 4),
)
