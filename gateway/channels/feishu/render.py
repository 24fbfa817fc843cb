"""Replies in the Markdown of Feishu's cards, for the element `markdown` of a card (schema 2.0)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

import msgspec

from gateway.platform.protocol import Piece
from gateway.text.layout import Dress, lay_out
from gateway.text.leaves import Leaf, Link, bold
from gateway.text.marks import JOINT, Pen, fenceless
from gateway.text.measure import json_bytes
from gateway.text.pages import Page, paginate
from gateway.text.plain import RULE, plain, quoted_lines
from gateway.text.tables import flat
from gateway.text.tree import read

TEXT_LIMIT: Final = 24_000
"""Bytes as a string of JSON inside a string of JSON. Feishu takes requests with a card of 30 KB."""

_SPECIAL: Final = re.compile(r"[&<>*_~`\[\]\\$]")
_FIRST_IN_LINE: Final = re.compile(r"^([ \t]*)(?:([-+#=])|(\d+)([.)]))", re.MULTILINE)
_NAME: Final = re.compile(r"<(?=/?at\b)", re.IGNORECASE)
_FENCE: Final = "```"


def render(markdown: str) -> list[Piece]:
    """A reply for a card; its plain text for a message of the type `text`. Neither names
    anybody."""
    return paginate(flat(read(markdown)), _PAGE)


def nameless(text: str) -> str:
    """Text in which no `<at ...>` is one."""
    return _NAME.sub(f"<{JOINT}", text)


def _entity(found: re.Match[str]) -> str:
    return f"&#{ord(found[0])};"


def _text(text: str) -> str:
    """Feishu has no backslash escapes but reads numeric entities."""
    return _FIRST_IN_LINE.sub(_first_in_line, _SPECIAL.sub(_entity, text))


def _first_in_line(found: re.Match[str]) -> str:
    blank, mark, number, dot = found.groups()
    return f"{blank}&#{ord(mark)};" if mark else f"{blank}{number}&#{ord(dot)};"


def _code(text: str) -> str:
    return _text(text) if "`" in text else f"`{nameless(text)}`"


def _link(link: Link, label: str) -> tuple[str, str]:
    if link.is_mail:
        return _text(label), _text(link.address_behind)
    address = link.address.replace("(", "%28").replace(")", "%29")
    return f"[{_text(label)}]({address})", _text(link.host_behind)


def _body(leaf: Leaf) -> str:
    match leaf.kind:
        case "code":
            return f"{_FENCE}{leaf.language}\n{fenceless(nameless(leaf.text))}\n{_FENCE}"
        case "rule":
            return RULE
        case "heading":
            return _PEN.write(bold(leaf.runs))
        case _:
            return _PEN.write(leaf.runs)


def _show(leaves: Sequence[Leaf]) -> Piece:
    return Piece(lay_out(leaves, _DRESS), nameless(plain(leaves)))


def _size(piece: Piece) -> tuple[int, ...]:
    return _nested(piece.plain), _nested(piece.text)


def _nested(text: str) -> int:
    return json_bytes(msgspec.json.encode(text).decode())


_PEN: Final = Pen(marks={"bold": "**", "italic": "*", "strike": "~~"}, text=_text, code=_code, link=_link)
_DRESS: Final = Dress(body=_body, quote=quoted_lines(">"), bullet="- ", indent=4)
_PAGE: Final = Page(show=_show, size=_size, limits=(TEXT_LIMIT, TEXT_LIMIT), gap=(4, 4))
