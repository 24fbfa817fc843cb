"""Markdown whose rendering takes time that grows with the square of its size, or is multiplied by its lines."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

COSTLY: Final[dict[str, Callable[[int], str]]] = {
    "wide table": lambda n: "|" + "a|" * (n // 6) + "\n|" + "-|" * (n // 6) + "\n" + "x\n" * (n // 6),
    "many wide tables": lambda n: costly("wide table", 2_000) * (n // 2_000),
    "http://a/[[[": lambda n: "http://a/" + "[" * n,
    "http://a/({[": lambda n: "http://a/" + "({[" * (n // 3),
    "![![": lambda n: "![" * (n // 2),
    "[[": lambda n: "[" * n,
    "[a][": lambda n: "[a][" * (n // 4),
    "![![ and ]": lambda n: "![" * (n // 3) + "]" * (n // 3),
    "://": lambda n: "://" * (n // 3),
    "$a": lambda n: "$a " * (n // 3),
    "$a$": lambda n: "$a$" * (n // 3),
    "\\(": lambda n: "\\(" * (n // 2),
    "lines in a deep quote": lambda n: "> " * 45 + "a\n" + "b\n" * (n // 2),
    "quotes that each look at all lines": lambda n: ("`" + "a" * 16 + "\n> ---\n") * (n // 24),
    "the same in a quote": lambda n: ("> `" + "a" * 14 + "\n> > ---\n") * (n // 26),
}
"""By what they repeat: the text of about so many characters."""


def costly(name: str, size: int) -> str:
    """Return the text of one of them."""
    return COSTLY[name](size)[:size]
