"""Leaves as plain text, for people and for whatever refuses markup."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Final

import msgspec

from gateway.text.layout import Dress, lay_out
from gateway.text.leaves import Leaf, Run, text_of
from gateway.text.tables import as_text

RULE: Final = "──────────"


def plain(leaves: Sequence[Leaf]) -> str:
    """Return leaves without markup: quotes after `> `, addresses after the labels of links, tables
    as columns."""
    return lay_out(leaves, _PLAIN)


def unlinked(leaf: Leaf) -> Leaf:
    """Return a leaf with the addresses of its links as text."""
    return msgspec.structs.replace(leaf, runs=tuple(_unlinked(leaf.runs)))


def quoted_lines(mark: str) -> Callable[[str], str]:
    """Return a function that puts a mark before each line."""
    return lambda text: "\n".join(f"{mark} {line}".rstrip() for line in text.split("\n"))


def _unlinked(runs: Sequence[Run]) -> list[Run]:
    found: list[Run] = []
    for link, group in groupby(runs, lambda run: run.link):
        found += [msgspec.structs.replace(run, link=None) for run in group]
        found += [Run(link.address_behind)] if link is not None and not link.bare else []
    return found


def _body(leaf: Leaf) -> str:
    match leaf.kind:
        case "rule":
            return RULE
        case "table":
            return plain([msgspec.structs.replace(part, path=()) for part in as_text(leaf)])
        case _:
            return text_of(unlinked(leaf).runs)


_PLAIN: Final = Dress(body=_body, quote=quoted_lines(">"), code_in_quotes=True)
