"""Incoming messages in a platform's markup as plain text. When in doubt, text stays."""

from __future__ import annotations

import html
import re
from html.parser import HTMLParser
from typing import Final

import nh3

_SLACK: Final = re.compile(r"<([^<>\n]+)>")

_TAGS: Final = frozenset(
    "a blockquote br div h1 h2 h3 h4 h5 h6 hr img li ol p pre table tbody td th thead tr ul".split()
)
_DEEPEST: Final = 500
_SHALLOW: Final = "p|li|td|th|tr|dt|dd|br|hr|img|input|meta|link|col|option|wbr"
_DEEP: Final = re.compile(rf"<(/?)(?!(?:{_SHALLOW})\b)[a-z]", re.IGNORECASE)
_QUOTES_SHOWN: Final = 5
_SOFT: Final = "\v"  # the border of a block: a line end, unless there is one already
_BEGINS: Final = {"br": "\n", "hr": f"{_SOFT}---{_SOFT}", "div": _SOFT, "tr": _SOFT, "td": "\t", "th": "\t"}
_ENDED: Final = dict.fromkeys(("div", "li", "tr"), _SOFT) | dict.fromkeys(
    ("p", "pre", "table", "h1", "h2", "h3", "h4", "h5", "h6"), "\n\n"
)
_ENDS: Final = re.compile(r"(?<![ \t])[ \t]*[\n\v][ \t\n\v]*")
_NUMBER: Final = re.compile("[0-9]{1,9}")
_SPACE: Final = re.compile(r"[ \t\r\n\f]+")

_QUOTED: Final = re.compile(r"\s*>")
_WROTE: Final = (
    "wrote|writes|schrieb|a écrit|escribió|ha scritto|escreveu|schreef|geschreven|skrev|napisała?|napisana|пишет|пише|"
    "написала?|написав|写道|寫道|のメール|작성|yazdı|kirjoitti|كتب"
)
_LONGEST: Final = 300
_STARTS: Final = "On|Am|Le|El|Il|Em|No dia|Op|Den|Dnia|W dniu|Wiadomość|في|在"
_ATTRIBUTION: Final = re.compile(
    rf"(?:{_STARTS}|\d|[^<>]*<[^<>\s]+@[^<>\s]+>)(?=.*\d).*(?:{_WROTE}).*[:：]",
    re.IGNORECASE,
)


def slack_to_text(text: str) -> str:
    """Return Slack's `text` as plain text: names, links with their labels, entities."""
    text = _SLACK.sub(_slack_reference, text)
    return text.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")


def _slack_reference(found: re.Match[str]) -> str:
    target, _, label = found[1].partition("|")
    match target[:1]:
        case "@":
            return f"@{label or target[1:]}"
        case "#":
            return f"#{label or target[1:]}"
        case "!":
            return label or f"@{target[1:].partition('^')[0]}"
    address = target.removeprefix("mailto:").removeprefix("tel:")
    return f"{label} ({target})" if label and label not in (address, target) else label or address


def html_to_text(source: str) -> str:
    """Return the text of an HTML mail, or of any text: paragraphs, lists, tables and quotes (after
    `> `), links with addresses, images as labels; without scripts, styles and comments."""
    if _depth(source) > _DEEPEST:  # a tree as deep as a mail is long takes seconds to walk
        return html.unescape(re.sub(r"<[^<>]*>", " ", source)).strip()
    kept = nh3.clean(
        source,
        tags=set(_TAGS),
        attributes={"a": {"href"}, "img": {"alt"}, "ol": {"start"}},
        clean_content_tags={"script", "style", "title"},
        link_rel=None,
    )
    reader = _Reader()
    reader.feed(kept)
    reader.close()
    return reader.text()


def strip_quoted(text: str) -> str:
    """Return a mail without the one that it answers: lines after `>` at its end, if a line such as
    `On ... wrote:` stands before them, or begins them. All else stays, and so does a mail that is
    only a quote."""
    lines = text.replace("\r\n", "\n").rstrip().split("\n")
    start = len(lines)
    while start > 0 and (not lines[start - 1].strip() or _QUOTED.match(lines[start - 1])):
        start -= 1
    quoted = any(line.strip() for line in lines[start:])
    for above in range(1, 4):
        if quoted and _is_attribution([line.strip() for line in lines[max(0, start - above) : start]]):
            return "\n".join(lines[: start - above]).rstrip() or text
    inside = [inner for line in lines[start:] if (inner := _QUOTED.sub("", line, count=1).strip())]
    if any(_is_attribution(inside[:count]) for count in range(1, min(3, len(inside)) + 1)):
        return "\n".join(lines[:start]).rstrip() or text
    return text


def _is_attribution(lines: list[str]) -> bool:
    """Return whether lines are the attribution above a quote, wrapped only by a long address."""
    joined = " ".join(lines)
    if len(joined) > _LONGEST or not _ATTRIBUTION.fullmatch(joined):
        return False
    goes_on = not any(line[-1:] in ("", *".!?:") for line in lines[:-1])
    return len(lines) == 1 or ("@" in joined and goes_on)


def _depth(source: str) -> int:
    """Return the largest depth to which elements are nested."""
    depth = deepest = 0
    for tag in _DEEP.finditer(source):
        depth = max(0, depth - 1) if tag[1] else depth + 1
        deepest = max(deepest, depth)
    return deepest


class _Reader(HTMLParser):
    """Reads cleaned HTML: all tags are closed. A space that must stay is a non-breaking one."""

    def __init__(self) -> None:
        super().__init__()
        self._parts: list[list[str]] = [[]]
        self._lists: list[int | None] = []
        self._links: list[tuple[str, int]] = []
        self._verbatim = 0

    def text(self) -> str:
        return _tidy("".join(self._parts[0])).replace("\xa0", " ")

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        match tag:
            case "img":
                self._add(given.get("alt", ""))
            case "a":
                self._links.append((given.get("href", ""), len(self._parts[-1])))
            case "ul" | "ol":
                start = given.get("start", "")
                self._lists.append(None if tag == "ul" else int(start) if _NUMBER.fullmatch(start) else 1)
                self._add(_SOFT if len(self._lists) > 1 else "\n\n")
            case "li":
                self._item()
            case "blockquote":
                self._parts.append([])
            case _:
                self._verbatim += tag == "pre"
                self._add(_BEGINS.get(tag, "\n\n"))

    def handle_endtag(self, tag: str) -> None:
        match tag:
            case "a" if self._links:
                self._link(*self._links.pop())
            case "ul" | "ol":
                self._lists.pop()
                self._add(_SOFT if self._lists else "\n\n")
            case "blockquote" if len(self._parts) > 1:
                lines = _tidy("".join(self._parts.pop())).split("\n")
                mark = ">\xa0" if len(self._parts) <= _QUOTES_SHOWN else ""
                self._add("\n\n" + "\n".join((mark + line).rstrip("\xa0") for line in lines) + "\n\n")
            case _:
                self._verbatim -= tag == "pre"
                self._add(_ENDED.get(tag, ""))

    def handle_data(self, data: str) -> None:
        self._add(data.expandtabs(4).replace(" ", "\xa0") if self._verbatim else _SPACE.sub(" ", data))

    def _add(self, text: str) -> None:
        self._parts[-1].append(text)

    def _item(self) -> None:
        number = self._lists[-1] if self._lists else None
        if number is not None:
            self._lists[-1] = number + 1
        indent = "\xa0\xa0" * min(len(self._lists) - 1, 10)
        self._add(f"{_SOFT}{indent}{'-' if number is None else f'{number}.'} ")

    def _link(self, address: str, start: int) -> None:
        label = "".join(self._parts[-1][start:]).strip()
        if not label:
            self._add(address)
        elif label not in (address, address.removeprefix("mailto:"), address.rstrip("/")) and address:
            self._add(f" ({address})")


def _tidy(text: str) -> str:
    """Remove spaces at line ends, keep at most one blank line, and separate the cells of a row."""
    text = re.sub(r"\t+", " | ", _ENDS.sub(_line_ends, text.strip(" \t\n\v")))
    return re.sub(" {2,}", " ", text)


def _line_ends(found: re.Match[str]) -> str:
    """Return one line end for a line that ends with its block, two for a block of its own."""
    ends = found[0].strip(" \t")
    lines = ends.count("\n") + (ends[0] == _SOFT)
    return "\n" * min(2, max(1, lines))
