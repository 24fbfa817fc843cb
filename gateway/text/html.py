"""Leaves as HTML. For any input, the output holds only the tags and attributes written here."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Final

import msgspec

from gateway.text.leaves import Leaf, Run, Step, Style

_STYLES: Final[Mapping[Style, str]] = {"bold": "strong", "italic": "em", "strike": "del"}


class Tags(msgspec.Struct, frozen=True, kw_only=True):
    """`extra` are attributes of tags as written, with a space before; `align` cells or not."""

    extra: Mapping[str, str] = {}
    align: bool = False

    def to_html(self, leaves: Sequence[Leaf]) -> str:
        """Return the HTML of leaves. An item that began on an earlier page begins anew."""
        return "\n".join(self._nested([(leaf, leaf.path) for leaf in leaves]))

    def _nested(self, leaves: Sequence[tuple[Leaf, Sequence[Step]]]) -> list[str]:
        """Return the HTML of leaves, each with the rest of its path."""
        written: list[str] = []
        for (kind, _), group in groupby(leaves, _outermost):
            inside = list(group)
            match kind:
                case "leaf":
                    written += [self._block(leaf) for leaf, _ in inside]
                case "quote":
                    below = self._nested([(leaf, path[1:]) for leaf, path in inside])
                    written += [self._tag("blockquote"), *below, "</blockquote>"]
                case _:
                    number = inside[0][1][0].number
                    start = "" if number in (None, 1) else f' start="{number}"'
                    written.append("<ul>" if number is None else f"<ol{start}>")
                    for _, item in groupby(inside, lambda one: one[1][0].id):
                        below = self._nested([(leaf, path[1:]) for leaf, path in item])
                        written.append("<li>" + "\n".join(below) + "</li>")
                    written.append("</ul>" if number is None else "</ol>")
        return written

    def _block(self, leaf: Leaf) -> str:
        match leaf.kind:
            case "heading":
                return f"<h{leaf.level}>{inline_html(leaf.runs, _STYLES)}</h{leaf.level}>"
            case "code":
                return self._tag("pre") + code_html(leaf) + "</pre>"
            case "rule":
                return "<hr>"
            case "table":
                return self._table(leaf)
            case "text":
                text = inline_html(leaf.runs, _STYLES)
                return text if leaf.tight else f"<p>{text}</p>"

    def _table(self, leaf: Leaf) -> str:
        def row(tag: str, cells: Sequence[Sequence[Run]]) -> str:
            inner = (
                f"{self._tag(tag, align)}{inline_html(cell, _STYLES)}</{tag}>"
                for align, cell in zip(leaf.align, cells, strict=True)
            )
            return "<tr>" + "".join(inner) + "</tr>"

        body = "\n".join(row("td", cells) for cells in leaf.rows[1:])
        body = f"<tbody>\n{body}\n</tbody>\n" if body else ""
        return f"{self._tag('table')}\n<thead>{row('th', leaf.rows[0])}</thead>\n{body}</table>"

    def _tag(self, name: str, align: str = "") -> str:
        aligned = f' align="{align}"' if align and self.align else ""
        return f"<{name}{aligned}{self.extra.get(name, '')}>"


def escaped(text: str) -> str:
    """Escape a text for a place between tags or in an attribute in double quotes."""
    return html.escape(text, quote=False).replace('"', "&quot;")


def inline_html(runs: Sequence[Run], styles: Mapping[Style, str], line_end: str = "<br>") -> str:
    """Return the HTML of runs. A link whose label does not name its host has the host after it."""
    written: list[str] = []
    for link, group in groupby(runs, lambda run: run.link):
        text = _styled(list(group), styles).replace("\n", line_end)
        if link is not None:
            text = f'<a href="{escaped(link.address)}">{text}</a>{escaped(link.host_behind)}'
        written.append(text)
    return "".join(written)


def _styled(runs: Sequence[Run], styles: Mapping[Style, str]) -> str:
    """Return the HTML of runs. Tags stay open while the outermost styles are the same."""
    written = list[str]()
    open_ = list[Style]()
    for run in [*runs, Run("")]:
        same = 0
        while same < min(len(open_), len(run.styles)) and open_[same] == run.styles[same]:
            same += 1
        written += [f"</{styles[style]}>" for style in reversed(open_[same:])]
        written += [f"<{styles[style]}>" for style in run.styles[same:]]
        open_ = list(run.styles)
        written.append(f"<code>{escaped(run.text)}</code>" if run.code else escaped(run.text))
    return "".join(written)


def _outermost(one: tuple[Leaf, Sequence[Step]]) -> tuple[str, int]:
    """Return the outermost block of a leaf, by which neighbours are grouped."""
    _, path = one
    if not path:
        return "leaf", 0
    return ("quote", path[0].id) if path[0].kind == "quote" else ("list", path[0].list)


def code_html(leaf: Leaf) -> str:
    """Return a block of code with its language."""
    language = f' class="language-{escaped(leaf.language)}"' if leaf.language else ""
    return f"<code{language}>{escaped(leaf.text)}</code>"
