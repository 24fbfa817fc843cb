"""Markdown as leaves: CommonMark with tables, struck text and bare addresses."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import count, pairwise
from threading import local
from typing import Final

from markdown_it import MarkdownIt
from markdown_it.rules_core import StateCore
from markdown_it.token import Token
from msgspec.structs import replace

from gateway.text.characters import clean, is_blank
from gateway.text.leaves import Align, Kind, Leaf, Link, Run, Step, Style, is_link, text_of, unshown_host

LIMIT_CHARS: Final = 128 * 1024  # longer text is shown without parsing, paragraph by paragraph
_MAX_NESTING: Final = 50
_MAX_BRACKETS: Final = 1000  # of a document: each may begin a link, whose end takes time to find
# More of these is no text of a person or a model: some can be combined so that parsing takes
# minutes.
_MAX_LINES: Final = 5_000  # a line costs time for each quote and list that it may be in
_MAX_CELLS: Final = 40_000  # missing cells of a row are made, too
_MAX_ADDRESSES: Final = 1_000
_MAX_QUOTED: Final = 200_000  # a quote looks at every line up to the next blank one
_BEGIN: Final = re.compile(r"[\s>*+\-\d.)]*")  # of a line: what may open blocks in each other
_PARAGRAPHS: Final = re.compile(r"\n[ \t]*\n\s*")
_LANGUAGE: Final = re.compile(r"[A-Za-z0-9_+#.-]{1,32}")
_STYLES: Final[dict[str, Style]] = {"strong": "bold", "em": "italic", "s": "strike"}
_ALIGN: Final[dict[str, Align]] = {"text-align:center": "center", "text-align:right": "right"}


def read(markdown: str) -> list[Leaf]:
    """Return a document's leaves without blank ones. Unfinished markup is closed, or is text."""
    text = clean(markdown)
    if len(text) > LIMIT_CHARS or _is_costly(text):
        return _as_it_is(text)
    tokens = _parser().parse(text)
    if any(token.level >= _MAX_NESTING - 2 for token in tokens):
        return _as_it_is(text)  # deeper blocks would lose their text
    walk = _Walk()
    for token in tokens:
        walk.step(token)
    return walk.leaves


def _is_costly(text: str) -> bool:
    lines = text.split("\n")
    cells = len(lines) * max(line.count("|") for line in lines)
    if len(lines) > _MAX_LINES or cells > _MAX_CELLS or text.count("://") > _MAX_ADDRESSES:
        return True
    if ">" not in text:
        return False
    longest = max(part.count("\n") for part in _PARAGRAPHS.split(text)) + 1
    depths = [found[0].count(">") for line in lines if (found := _BEGIN.match(line))]
    return longest * sum(one != other for one, other in pairwise(depths)) > _MAX_QUOTED


def _as_it_is(text: str) -> list[Leaf]:
    paragraphs = (part.strip("\n") for part in _PARAGRAPHS.split(text))
    return [Leaf(kind="text", runs=(Run(part),)) for part in paragraphs if not is_blank(part)]


_mine = local()


def _parser() -> MarkdownIt:
    """Return this thread's parser. Threads do not share one, for its link finder keeps state."""
    known: MarkdownIt | None = getattr(_mine, "parser", None)
    if known is None:
        rules = {"html": False, "linkify": True, "breaks": True, "maxNesting": _MAX_NESTING}
        known = _mine.parser = MarkdownIt("commonmark", rules).enable(["table", "strikethrough", "linkify"])
        # Only what has a scheme: `setup.py` and `a.sh` are no hosts in a chat about code.
        assert known.linkify is not None
        known.linkify.set({"fuzzy_link": False, "fuzzy_email": False, "fuzzy_ip": False})
        known.core.ruler.before("inline", "few_brackets", _few_brackets)
    return known


def _few_brackets(state: StateCore) -> None:
    """Leave text past the limit of brackets unparsed."""
    left = _MAX_BRACKETS
    for token in state.tokens:
        if token.type == "inline":
            left -= token.content.count("[")
            if left < 0:
                token.type, token.children = "plain", [Token("text", "", 0, content=token.content)]


class _Walk:
    """Builds leaves from the tokens of a document, which mark where each block begins and ends."""

    def __init__(self) -> None:
        self.leaves: list[Leaf] = []
        self._ids = count(1)
        self._path: list[Step] = []
        self._opened: set[int] = set()
        self._lists: list[tuple[int, count[int] | None]] = []
        self._kind: Kind = "text"
        self._level = 0
        self._tight = False
        self._rows: list[list[tuple[Run, ...]]] | None = None
        self._align: list[Align] = []

    def step(self, token: Token) -> None:
        """Process the next token."""
        match token.type:
            case "blockquote_open":
                self._path.append(Step("quote", next(self._ids)))
            case "list_item_open":
                list_id, numbers = self._lists[-1]
                number = None if numbers is None else next(numbers)
                self._path.append(Step("item", next(self._ids), list_id, number))
            case "blockquote_close" | "list_item_close":
                self._path.pop()
            case "bullet_list_open":
                self._lists.append((next(self._ids), None))
            case "ordered_list_open":
                self._lists.append((next(self._ids), count(int(token.attrs.get("start", 1)))))
            case "bullet_list_close" | "ordered_list_close":
                self._lists.pop()
            case "paragraph_open":
                self._kind = "text"
                self._level = 0
                self._tight = token.hidden
            case "heading_open":
                self._kind, self._level, self._tight = "heading", int(token.tag[1:]), bool(self._lists)
            case "inline" | "plain":
                runs = _runs_of(token.children or (), self._ids)
                if self._rows is not None:
                    self._rows[-1].append(runs)
                elif _are_seen(runs):
                    self._add(Leaf(kind=self._kind, runs=runs, level=self._level, tight=self._tight))
            case "fence" | "code_block":
                words = token.info.split()
                text = token.content.removesuffix("\n")
                language = words[0] if words and _LANGUAGE.fullmatch(words[0]) else ""
                if not is_blank(text):
                    run = Run(text, code=True)
                    self._add(Leaf(kind="code", runs=(run,), language=language, tight=bool(self._lists)))
            case "hr":
                self._add(Leaf(kind="rule"))
            case "table_open":
                self._rows = []
                self._align = []
            case "tr_open" if self._rows is not None:
                self._rows.append([])
            case "th_open":
                self._align.append(_ALIGN.get(str(token.attrs.get("style", "")), "left"))
            case "table_close" if self._rows is not None:
                rows = tuple(tuple(row) for row in self._rows)
                self._rows = None
                if any(_are_seen(cell) for row in rows for cell in row):
                    self._add(Leaf(kind="table", rows=rows, align=tuple(self._align), tight=bool(self._lists)))

    def _add(self, leaf: Leaf) -> None:
        path = tuple(replace(step, opens=step.id not in self._opened) for step in self._path)
        self._opened.update(step.id for step in path)
        self.leaves.append(replace(leaf, path=path))


def _are_seen(runs: Sequence[Run]) -> bool:
    return any(not is_blank(run.text) for run in runs)


def _runs_of(tokens: Sequence[Token], ids: Iterator[int]) -> tuple[Run, ...]:
    """Return the runs of a paragraph. `ids` numbers its links.

    An image becomes a link: loading it would reveal to its host that, and when, the reply is read.
    A link to anything but the web or a mailbox becomes text, followed by its address.
    """
    runs: list[Run] = []
    styles: list[Style] = []
    opened: tuple[int, Token] | None = None
    for token in tokens:
        match token.type:
            case "text":
                _add(runs, clean(token.content), styles)
            case "softbreak" | "hardbreak":
                _add(runs, "\n", styles)
            case "code_inline":
                _add(runs, clean(token.content), (), code=True)
            case "link_open":
                opened = len(runs), token
                runs.append(Run(""))  # keeps the label from being merged into the run before it
            case "link_close" if opened is not None:
                first, link = opened
                address = str(link.attrs.get("href", ""))
                automatic = link.info == "auto"
                runs[first:] = _link_runs(runs[first:], address, automatic, next(ids))
                runs.append(Run(""))
                opened = None
            case "image":
                label = clean(_label_text(token.children or ()))
                address = str(token.attrs.get("src", ""))
                if opened is not None:  # a link within a link is not a link
                    _add(runs, label or address, styles)
                else:
                    runs += _link_runs([Run(label, tuple(styles))], address, False, next(ids))
                    runs.append(Run(""))
            case name:
                style = _STYLES.get(name.partition("_")[0])
                if style is not None and name.endswith("_open"):
                    styles.append(style)
                elif style is not None:
                    styles.remove(style)
    return tuple(run for run in runs if run.text)


def _add(runs: list[Run], text: str, styles: Sequence[Style], code: bool = False) -> None:
    run = Run(text, tuple(dict.fromkeys(styles)), code)
    if runs and runs[-1].text and replace(runs[-1], text=text) == run:
        run = replace(run, text=runs.pop().text + text)
    runs.append(run)


def _link_runs(label: list[Run], address: str, automatic: bool, at: int) -> list[Run]:
    """Return a label with its link. An invisible label is replaced by the address."""
    label_text = text_of(label)
    if is_blank(label_text):
        label = [Run(clean(address))]
        label_text = address
    bare = label_text.strip() == address
    if not is_link(address):
        return label if bare or not address else [*label, Run(f" ({clean(address)})")]
    link = Link(at, address, unshown_host(label_text, address), automatic or bare)
    return [replace(run, link=link) for run in label if run.text]


def _label_text(tokens: Sequence[Token]) -> str:
    """Return the text of an image's label."""
    return "".join(_label_text(token.children) if token.children else token.content for token in tokens)
