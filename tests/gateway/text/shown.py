"""What people are to see of a document, told by its leaves."""

from __future__ import annotations

import html
import importlib
import re
import unicodedata
from collections.abc import Callable
from itertools import groupby

from gateway.platform.protocol import Piece
from gateway.text.layout import flat, plain
from gateway.text.tree import read

Render = Callable[[str], list[Piece]]


def renderer(name: str) -> Render:
    render: Render = importlib.import_module(f"gateway.channels.{name}.render").render_reply
    return render


def letters(text: str) -> str:
    """Letters, numbers and signs, in order: what no renderer may lose or invent."""
    kinds = ((each, unicodedata.category(each)) for each in text if each != "─")
    return "".join(each for each, kind in kinds if kind[0] in "LN" or kind == "So")


def expected_letters(markdown: str, name: str) -> str:
    """The letters that a platform has to show of a document that fits into one message."""
    in_html = name in ("email", "matrix")
    found: list[str] = []
    for leaf in read(markdown) if in_html else flat(read(markdown)):
        found += [str(step.number) for step in leaf.path if step.opens and step.number is not None and not in_html]
        cells = [leaf.runs] if leaf.kind != "table" else [cell for row in leaf.rows for cell in row]
        for cell in cells:
            for link, group in groupby(cell, lambda run: run.link):
                label = "".join(run.text for run in group)
                if link is None:
                    found.append(label)
                elif name == "whatsapp":
                    found.append(link.shown_address if link.bare else label + link.address_behind)
                elif name in ("discord", "feishu") and link.is_mail:
                    found.append(label + link.address_behind)
                elif name == "discord" and link.bare:
                    found.append(link.address)
                elif name == "discord" and re.search(r"://|\w\.\w|@", label):
                    found.append(label + link.address)
                else:
                    found.append(label + link.host_behind)
    return letters("".join(found))


def bare(text: str, name: str) -> str:
    """Plain text without white space, joints and the marks of quotes, which each piece has anew."""
    return re.sub(r"[\s\u200b>]", "", html.unescape(text) if name == "slack" else text)


def assert_same_plain_text(pieces: list[Piece], markdown: str, name: str) -> None:
    leaves = read(markdown)
    whole = re.sub(r"[\s\u200b>]", "", plain(leaves)) if leaves else "…"
    assert "".join(bare(piece.plain, name) for piece in pieces) == whole
