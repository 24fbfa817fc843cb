"""Render replies as Discord Markdown."""

from __future__ import annotations

import re
from typing import Final

from gateway.platform.protocol import Piece
from gateway.text.characters import utf16
from gateway.text.layout import Dress, quoted_lines
from gateway.text.leaves import Link
from gateway.text.marks import JOINT, Pen, fenced
from gateway.text.pages import PageFormat, both, render

TEXT_LIMIT: Final = 1900
"""UTF-16 code units; Discord accepts 2000 characters."""

_SPECIAL: Final = re.compile(r"[\\*_~`|<\[]")
_FIRST_IN_LINE: Final = re.compile(r"^([ \t]*)([-+#>]|\d+(?=[.)]))", re.MULTILINE)
_NAME: Final = re.compile(r"@(?=everyone|here)|(?<=<)[@#](?=[!&]?\d)", re.IGNORECASE)
_LOOKS_LIKE_LINK: Final = re.compile(r"://|\w\.\w|@")


def render_reply(markdown: str) -> list[Piece]:
    """Render a reply as Discord Markdown. It mentions nobody and its links have no previews; still
    post it with empty `allowed_mentions` and suppressed embeds."""
    return render(markdown, _PAGE)


def defuse_mentions(text: str) -> str:
    """Break every `@everyone` and `<@id>`. Escaping does not help: Discord looks for mentions
    first."""
    return _NAME.sub(lambda found: found[0] + JOINT, text)


def _escape_text(text: str) -> str:
    return _FIRST_IN_LINE.sub(_escaped_first, _SPECIAL.sub(r"\\\g<0>", defuse_mentions(text)))


def _escaped_first(found: re.Match[str]) -> str:
    blank, mark = found.groups()
    return f"{blank}{mark}\\" if mark[0].isdigit() else f"{blank}\\{mark}"


def _inline_code(text: str) -> str:
    """Write code between more backticks than it contains in a row."""
    longest = max((len(ticks) for ticks in re.findall("`+", text)), default=0)
    pad = " " if text[0] == "`" or text[-1] == "`" else ""
    ticks = "`" * (longest + 1)
    return f"{ticks}{pad}{defuse_mentions(text)}{pad}{ticks}"


def _write_link(link: Link, label: str) -> tuple[str, str]:
    """Return the link and the text after it. `<address>` has no preview. Discord accepts no label
    that looks like an address, and only web addresses after a label."""
    if link.is_mail:
        return _escape_text(label), _escape_text(link.address_behind)
    address = link.address.replace("@", "%40") if _NAME.search(link.address) else link.address
    if link.bare:
        return f"<{address}>", ""
    if _LOOKS_LIKE_LINK.search(label):
        return _escape_text(label), f" (<{address}>)"
    return f"[{_escape_text(label)}](<{address}>)", _escape_text(link.host_behind)


_PEN: Final = Pen(
    marks={"bold": "**", "italic": "_", "strike": "~~"},
    text=_escape_text,
    code=_inline_code,
    block=lambda leaf: fenced(defuse_mentions(leaf.text), leaf.language),
    link=_write_link,
    headings=3,
)
_DRESS: Final = Dress(body=_PEN.write_leaf, quote=quoted_lines(">"), bullet="- ")
_PAGE: Final = PageFormat(
    write=_DRESS.lay_out,
    guard=defuse_mentions,
    size=both(utf16),
    limits=(TEXT_LIMIT, TEXT_LIMIT),
    gap=(2, 2),
)
