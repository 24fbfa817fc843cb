"""The inside of a paragraph as runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, Protocol

import msgspec

from gateway.text.clean import clean, is_blank
from gateway.text.leaves import Link, Run, Style, text_of
from gateway.text.links import is_link, unshown_host

_STYLES: Final[dict[str, Style]] = {"strong": "bold", "em": "italic", "s": "strike"}


class Token(Protocol):
    """The part of the parser's tokens that is used here."""

    type: str
    content: str
    info: str
    attrs: dict[str, str | int | float]

    @property
    def children(self) -> Sequence[Token] | None: ...


def runs_of(tokens: Sequence[Token], ids: Iterator[int]) -> tuple[Run, ...]:
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
                runs[first:] = _link_runs(runs[first:], str(link.attrs.get("href", "")), link.info == "auto", next(ids))
                runs.append(Run(""))
                opened = None
            case "image":
                label = clean(_label_text(token.children or ()))
                address = str(token.attrs.get("src", ""))
                if opened is not None:  # a link within a link is not a link
                    _add(runs, label or address, styles)
                else:
                    runs += [*_link_runs([Run(label, tuple(styles))], address, False, next(ids)), Run("")]
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


def _link_runs(label: list[Run], address: str, automatic: bool, at: int) -> list[Run]:
    """Return a label with its link. An invisible label is replaced by the address."""
    label_text = text_of(label)
    if is_blank(label_text):
        label, label_text = [Run(clean(address))], address
    if not is_link(address):
        return label if label_text.strip() == address or not address else [*label, Run(f" ({clean(address)})")]
    link = Link(at, address, unshown_host(label_text, address), automatic or label_text.strip() == address)
    return [msgspec.structs.replace(run, link=link) for run in label if run.text]


def _label_text(tokens: Sequence[Token]) -> str:
    """Return the text of an image's label."""
    return "".join(token.content if not token.children else _label_text(token.children) for token in tokens)
