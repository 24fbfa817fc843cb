"""Ways to write that make the eye jump: two statements on one line, a message in two places."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from itertools import pairwise

from tools.house.counting import Count, count_of, share
from tools.house.files import House, Source


def parallel_assignments(house: House) -> Count:
    """Return the share of assignments that give several names a value each, `a, b = x, y`."""
    found: list[str] = []
    total = 0
    for source in house.python:
        for node in ast.walk(source.tree):
            if isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign):
                total += 1
                if isinstance(node, ast.Assign) and _is_parallel(node):
                    found.append(f"{source.path}:{node.lineno}")
    return share(found, total)


def cut_messages(house: House) -> Count:
    """Count texts that are named in one statement, only to be put into the text of the next one."""
    return count_of([place for source in house.python for place in _cut(source)])


def _is_parallel(node: ast.Assign) -> bool:
    return isinstance(node.targets[0], ast.Tuple) and isinstance(node.value, ast.Tuple)


def _cut(source: Source) -> Iterator[str]:
    for function in ast.walk(source.tree):
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        uses = [node.id for node in ast.walk(function) if isinstance(node, ast.Name)]
        for block in _blocks(function):
            for first, second in pairwise(block):
                name = _named_text(first)
                # Named, and used once.
                if name and uses.count(name) == 2 and name in _names_in_texts(second):
                    yield f"{source.path}:{first.lineno}"


def _blocks(function: ast.AST) -> Iterator[list[ast.stmt]]:
    for node in ast.walk(function):
        for field in ("body", "orelse", "finalbody"):
            block = getattr(node, field, None)
            if isinstance(block, list):
                yield block


def _named_text(statement: ast.stmt) -> str:
    if not (isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name)):
        return ""
    value = statement.value
    is_text = isinstance(value, ast.JoinedStr) or (isinstance(value, ast.Constant) and isinstance(value.value, str))
    return statement.targets[0].id if is_text else ""


def _names_in_texts(statement: ast.stmt) -> set[str]:
    if not isinstance(statement, ast.Raise | ast.Return | ast.Expr):
        return set()
    return {
        part.value.id
        for text in ast.walk(statement)
        if isinstance(text, ast.JoinedStr)
        for part in text.values
        if isinstance(part, ast.FormattedValue) and isinstance(part.value, ast.Name)
    }
