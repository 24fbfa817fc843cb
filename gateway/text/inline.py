"""The inside of a paragraph as runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, Protocol

import msgspec

from gateway.text.clean import clean, is_blank
from gateway.text.leaves import Link, Run, Style, text_of
from gateway.text.links import is_link, untold_host

_STYLES: Final[dict[str, Style]] = {"strong": "bold", "em": "italic", "s": "strike"}


class Token(Protocol):
    """What is read of the parser's tokens."""

    type: str
    content: str
    info: str
    attrs: dict[str, str | int | float]

    @property
    def children(self) -> Sequence[Token] | None: ...


def runs_of(tokens: Sequence[Token], ids: Iterator[int]) -> tuple[Run, ...]:
    """The runs of a paragraph. `ids` numbers its links.

    An image is a link: loading it would tell its host that, and when, somebody reads the reply. A
    link that leads elsewhere than to the web or to a mailbox is text with its address behind.
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
                runs.append(Run(""))  # what is in the link stays apart from what is before it
            case "link_close" if opened is not None:
                first, link = opened
                runs[first:] = _linked(runs[first:], str(link.attrs.get("href", "")), link.info == "auto", next(ids))
                runs.append(Run(""))
                opened = None
            case "image":
                label = clean(_words(token.children or ()))
                address = str(token.attrs.get("src", ""))
                if opened is not None:  # a link in a link is none
                    _add(runs, label or address, styles)
                else:
                    runs += [*_linked([Run(label, tuple(styles))], address, False, next(ids)), Run("")]
            case name:
                style = _STYLES.get(name.partition("_")[0])
                if style is not None and name.endswith("_open"):
                    styles.append(style)
                elif style is not None:
                    styles.remove(style)
    return tuple(run for run in runs if run.text)


def _add(runs: list[Run], text: str, styles: Sequence[Style], code: bool = False) -> None:
    run = Run(text, tuple(dict.fromkeys(styles)), code)
    if runs and runs[-1].text and msgspec.structs.replace(runs[-1], text=text) == run:
        run = msgspec.structs.replace(run, text=runs.pop().text + text)
    runs.append(run)


def _linked(label: list[Run], address: str, automatic: bool, at: int) -> list[Run]:
    """A label with its link. One that nobody can see is the address."""
    said = text_of(label)
    if is_blank(said):
        label, said = [Run(clean(address))], address
    if not is_link(address):
        return label if said.strip() == address or not address else [*label, Run(f" ({clean(address)})")]
    link = Link(at, address, untold_host(said, address), automatic or said.strip() == address)
    return [msgspec.structs.replace(run, link=link) for run in label if run.text]


def _words(tokens: Sequence[Token]) -> str:
    """The text of an image's label."""
    return "".join(token.content if not token.children else _words(token.children) for token in tokens)
