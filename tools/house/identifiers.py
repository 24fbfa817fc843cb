"""The identifiers of Python source, where they are defined and where they are used."""

from __future__ import annotations

import ast
from bisect import bisect_left
from collections.abc import Iterator


def read_identifiers(node: ast.AST, lines: list[int]) -> Iterator[tuple[int, str]]:
    """Yield line and identifier of the nodes below `node` that cover one of `lines`, which are sorted.

    Other nodes are not entered: a walk of the whole tree takes seconds. The words of strings and of
    comments are not identifiers.
    """
    for child in ast.iter_child_nodes(node):
        first, last = _extent(child)
        if last is None or _has_between(lines, first, last):
            yield from ((_line(child), name) for name in _names(child))
            yield from read_identifiers(child, lines)


def _line(node: ast.AST) -> int:
    """Return the line of a node's own identifier; an attribute stands at the end of its expression."""
    line: int = getattr(node, "end_lineno" if isinstance(node, ast.Attribute) else "lineno", 0)
    return line


def _extent(node: ast.AST) -> tuple[int, int | None]:
    """Return the first and the last line of a node with its decorators; some nodes do not know them."""
    first = getattr(node, "lineno", 0)
    for decorator in getattr(node, "decorator_list", ()):
        first = min(first, decorator.lineno)
    return first, getattr(node, "end_lineno", None)


def _has_between(numbers: list[int], first: int, last: int) -> bool:
    at = bisect_left(numbers, first)
    return at < len(numbers) and numbers[at] <= last


def _names(node: ast.AST) -> tuple[str, ...]:
    """Return the identifiers that a node itself holds, not those below it."""
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name) | ast.arg(arg=name):
            return (name,)
        case ast.ClassDef(name=name) | ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
            return (name,)
        case ast.keyword(arg=str(name)) | ast.ExceptHandler(name=str(name)):
            return (name,)
        case ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
            return (name,)
        case ast.MatchMapping(rest=str(name)):
            return (name,)
        case ast.MatchClass(kwd_attrs=names) | ast.Global(names=names) | ast.Nonlocal(names=names):
            return tuple(names)
        case ast.alias(name=name, asname=asname):
            return (*name.split("."), asname or "")
        case ast.ImportFrom(module=str(module)):
            return tuple(module.split("."))
    return ()
