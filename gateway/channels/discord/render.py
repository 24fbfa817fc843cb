"""Replies in Discord's Markdown."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from gateway.platform.protocol import Piece
from gateway.text.layout import Dress, lay_out
from gateway.text.leaves import Leaf, Link, bold
from gateway.text.marks import JOINT, Pen, fenceless
from gateway.text.measure import utf16
from gateway.text.pages import Page, paginate
from gateway.text.plain import RULE, plain, quoted_lines
from gateway.text.tables import flat
from gateway.text.tree import read

TEXT_LIMIT: Final = 1900
"""UTF-16 code units; Discord takes 2000 characters."""

_SPECIAL: Final = re.compile(r"[\\*_~`|<\[]")
_FIRST_IN_LINE: Final = re.compile(r"^([ \t]*)([-+#>]|\d+(?=[.)]))", re.MULTILINE)
_NAME: Final = re.compile(r"@(?=everyone|here)|(?<=<)[@#](?=[!&]?\d)", re.IGNORECASE)
_LOOKS_LIKE_LINK: Final = re.compile(r"://|\w\.\w|@")
_FENCE: Final = "```"
_HEADINGS: Final = 3


def render(markdown: str) -> list[Piece]:
    """A reply in Discord's Markdown. It names nobody, and its links are not fetched for a preview;
    post it with `allowed_mentions` of nobody and with embeds suppressed all the same."""
    return paginate(flat(read(markdown)), _PAGE)


def nameless(text: str) -> str:
    """Text in which no `@everyone` and no `<@id>` is one. Escapes do not do it: Discord looks for
    names first."""
    return _NAME.sub(lambda found: found[0] + JOINT, text)


def _text(text: str) -> str:
    return _FIRST_IN_LINE.sub(_escaped_first, _SPECIAL.sub(r"\\\g<0>", nameless(text)))


def _escaped_first(found: re.Match[str]) -> str:
    blank, mark = found.groups()
    return f"{blank}{mark}\\" if mark[0].isdigit() else f"{blank}\\{mark}"


def _code(text: str) -> str:
    """Inside a row of backticks that is longer than any in it."""
    longest = max((len(ticks) for ticks in re.findall("`+", text)), default=0)
    pad = " " if text[0] == "`" or text[-1] == "`" else ""
    ticks = "`" * (longest + 1)
    return f"{ticks}{pad}{nameless(text)}{pad}{ticks}"


def _link(link: Link, label: str) -> tuple[str, str]:
    """`<address>` has no preview. Discord takes no label that looks like an address, and behind a
    label no other address than one of the web."""
    if link.is_mail:
        return _text(label), _text(link.address_behind)
    address = link.address.replace("@", "%40") if _NAME.search(link.address) else link.address
    if link.bare:
        return f"<{address}>", ""
    if _LOOKS_LIKE_LINK.search(label):
        return _text(label), f" (<{address}>)"
    return f"[{_text(label)}](<{address}>)", _text(link.host_behind)


def _body(leaf: Leaf) -> str:
    match leaf.kind:
        case "code":
            return f"{_FENCE}{leaf.language}\n{fenceless(nameless(leaf.text))}\n{_FENCE}"
        case "rule":
            return RULE
        case "heading" if leaf.level <= _HEADINGS and "\n" not in leaf.text:
            return f"{'#' * leaf.level} {_PEN.write(leaf.runs)}"
        case "heading":
            return _PEN.write(bold(leaf.runs))
        case _:
            return _PEN.write(leaf.runs)


def _show(leaves: Sequence[Leaf]) -> Piece:
    return Piece(lay_out(leaves, _DRESS), nameless(plain(leaves)))


def _size(piece: Piece) -> tuple[int, ...]:
    return utf16(piece.plain), utf16(piece.text)


_PEN: Final = Pen(marks={"bold": "**", "italic": "_", "strike": "~~"}, text=_text, code=_code, link=_link)
_DRESS: Final = Dress(body=_body, quote=quoted_lines(">"), bullet="- ")
_PAGE: Final = Page(show=_show, size=_size, limits=(TEXT_LIMIT, TEXT_LIMIT), gap=(2, 2))
