"""Imports between the files of the product."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import PurePosixPath

from tools.house.files import House, Source
from tools.house.graph import Graph


@cache
def import_graph(house: House) -> Graph:
    """Return which file imports which, also in functions and for type checkers alone.

    A submodule does not count as an import of the packages around it: their `__init__` is nearly always empty.
    """
    modules = {module_name(source.path): source.path.as_posix() for source in house.python}
    return {
        path: {found for found in _imported(source, modules) if found != path}
        for source in house.python
        for path in [source.path.as_posix()]
    }


def module_name(path: PurePosixPath) -> str:
    """Return the dotted name under which a file is imported."""
    parts = path.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _imported(source: Source, modules: dict[str, str]) -> Iterator[str]:
    """Yield the files of the product that a file imports."""
    for node in source.statements:
        if isinstance(node, ast.Import):
            for name in node.names:
                yield from _file(name.name, modules)
        elif isinstance(node, ast.ImportFrom):
            base = _absolute(node, source.path)
            for name in node.names:
                yield from _file(f"{base}.{name.name}", modules)


def _absolute(node: ast.ImportFrom, path: PurePosixPath) -> str:
    """Return the dotted name of what `from ... import` takes its names from."""
    if not node.level:
        return node.module or ""
    package = path.parts[: len(path.parts) - node.level]
    return ".".join((*package, *([node.module] if node.module else [])))


def _file(name: str, modules: dict[str, str]) -> Iterator[str]:
    """Yield the file of a module, or of the nearest module above a name that is defined in one."""
    while name:
        if name in modules:
            yield modules[name]
            return
        name = name.rpartition(".")[0]
