"""A document as the leaves of its tree: paragraphs, headings, code, tables and rules, each with the
way down to it.

Every channel renders leaves, so a text is cut between two leaves or inside one, and never inside
markup.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, Literal
from urllib.parse import urlsplit

import msgspec
from msgspec.structs import replace

Style = Literal["bold", "italic", "strike"]
Align = Literal["left", "center", "right"]
Kind = Literal["text", "heading", "code", "table", "rule"]

_LINK: Final = re.compile(r"(?:https?://|mailto:)", re.IGNORECASE)


class Link(msgspec.Struct, frozen=True):
    """The target of a label. `at` numbers the links of a document. `host` is to be shown after the
    label, '' when the label names it; `bare`: the label is the address itself."""

    at: int
    address: str
    host: str
    bare: bool

    @property
    def is_mail(self) -> bool:
        return self.address.lower().startswith("mailto:")

    @property
    def shown_address(self) -> str:
        """The address as a person writes it: a mailbox without its scheme."""
        return self.address[7:] if self.is_mail else self.address

    @property
    def address_behind(self) -> str:
        """The text after the label in markup that has no links."""
        return "" if self.bare else f" ({self.shown_address})"

    @property
    def host_behind(self) -> str:
        """The text after the label in markup that has links."""
        return f" ({self.host})" if self.host else ""


class Run(msgspec.Struct, frozen=True):
    """Text of one look. Styles are ordered from the outermost inwards; code has none."""

    text: str
    styles: tuple[Style, ...] = ()
    code: bool = False
    link: Link | None = None


class Step(msgspec.Struct, frozen=True):
    """A quote or an item of a list that a leaf is in. `id` tells them apart in a document, `list`
    is the id of the item's list, `number` its number there. `opens`: the leaf is the first one in
    it."""

    kind: Literal["quote", "item"]
    id: int
    list: int = 0
    number: int | None = None
    opens: bool = False


class Leaf(msgspec.Struct, frozen=True, kw_only=True):
    """One block of text. Code is one run; a table has rows of cells instead, the first row is its
    head. `tight`: no blank line stands before it when it is in the same list as the leaf before."""

    kind: Kind
    runs: tuple[Run, ...] = ()
    path: tuple[Step, ...] = ()
    level: int = 0
    language: str = ""
    rows: tuple[tuple[tuple[Run, ...], ...], ...] = ()
    align: tuple[Align, ...] = ()
    tight: bool = False

    @property
    def text(self) -> str:
        return text_of(self.runs)

    def part(self, start: int, stop: int | None = None) -> Leaf:
        """Return characters `start` to `stop` or the end. A later part opens no quote or item."""
        path = self.path if start == 0 else continued_path(self.path)
        return replace(self, runs=slice_runs(self.runs, start, stop), path=path)


def continued_path(path: Sequence[Step]) -> tuple[Step, ...]:
    """Return the path of a later leaf in the same quotes and items: it opens none of them."""
    return tuple(replace(step, opens=False) for step in path)


def text_of(runs: Sequence[Run]) -> str:
    """Return the text of runs, without the addresses of links."""
    return "".join([run.text for run in runs])


def bold(runs: Sequence[Run]) -> list[Run]:
    """Return the runs in bold. Code stays as it is."""
    return [run if run.code or "bold" in run.styles else replace(run, styles=("bold", *run.styles)) for run in runs]


def slice_runs(runs: Sequence[Run], start: int, stop: int | None = None) -> tuple[Run, ...]:
    """Return the runs of characters `start` to `stop`, at a cost that does not grow with the
    rest."""
    first, begins = _run_at(runs, start, 0, 0)
    last, ends = (len(runs), 0) if stop is None else _run_at(runs, stop, first, begins)
    inside = list(runs[first : last + 1])
    if last < len(runs):
        inside[-1] = replace(inside[-1], text=inside[-1].text[: (stop or 0) - ends])
    if inside:
        inside[0] = replace(inside[0], text=inside[0].text[start - begins :])
    if inside and not inside[-1].text:
        inside.pop()
    return tuple(inside)


def _run_at(runs: Sequence[Run], at: int, number: int, begins: int) -> tuple[int, int]:
    """Return the number of the run that holds character `at`, and where that run begins. The search
    starts at run `number`, which begins at `begins`."""
    while number < len(runs) and begins + len(runs[number].text) <= at:
        begins += len(runs[number].text)
        number += 1
    return number, begins


def is_link(address: str) -> bool:
    """Return whether an address may be a link: web and mail; not a script, a file or an app."""
    return _LINK.match(address) is not None


def unshown_host(label: str, address: str) -> str:
    """Return the host of an address, or its mailbox; '' when the label is an address of it."""
    host = _host(address)
    return "" if _host(label.strip()) == host else host


def _host(address: str) -> str:
    """Return the host of an address, with or without a scheme, or its mailbox."""
    if address.lower().startswith("mailto:"):
        return address[7:].partition("?")[0]
    if "@" in address and "://" not in address:
        return address
    try:
        return urlsplit(address if "://" in address else f"//{address}").hostname or ""
    except ValueError:
        return ""
