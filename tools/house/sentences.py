"""Docstrings, and how many of them begin without a verb or a thing."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Final

from tools.house.counting import Count, share
from tools.house.files import House, Source

_INDIRECT: Final = re.compile(
    r"\s*(?:(?:What|Who|Which|Where)(?:ever)?|Whom|Whose|Whether|How|Why"
    r"|The same|Those|That of|Of|As|With|Without)\b"
)

Documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def indirect_docstrings(house: House) -> Count:
    """Return the share of the product's docstrings that begin with a question word or a fragment."""
    return _indirect(house.python)


def indirect_test_docstrings(house: House) -> Count:
    """Return the share of the tests' docstrings that begin with a question word or a fragment."""
    return _indirect(house.test_python)


def read_docstrings(source: Source) -> Iterator[tuple[int, str]]:
    """Yield line and text of the docstrings of a module, its classes, functions and attributes."""
    yield from _first(source.tree)
    before: ast.stmt | None = None
    for node in source.statements:
        if isinstance(node, Documented):
            yield from _first(node)
        elif isinstance(before, ast.Assign | ast.AnnAssign):
            yield from _string(node)
        before = node


def _indirect(sources: list[Source]) -> Count:
    found = [(source.path, line, text) for source in sources for line, text in read_docstrings(source)]
    return share(
        [f"{path}:{line}: {text.strip().splitlines()[0]}" for path, line, text in found if _INDIRECT.match(text)],
        len(found),
    )


def _first(node: Documented) -> Iterator[tuple[int, str]]:
    if node.body:
        yield from _string(node.body[0])


def _string(node: ast.stmt) -> Iterator[tuple[int, str]]:
    """Yield line and text of a statement that is nothing but a string."""
    match node:
        case ast.Expr(value=ast.Constant(value=str(text))):
            yield node.lineno, text
