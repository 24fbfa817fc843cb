"""The source files of a checkout, each read and parsed at most once."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Final

PRODUCT: Final = ("console", "gateway", "shared", "shoal", "worker")
TESTS: Final = ("proof", "tests")
CODE: Final = (".py", ".lua", ".js")


@dataclass(frozen=True, eq=False)
class Source:
    """One file of a checkout; `path` is relative to the root of it."""

    path: PurePosixPath
    content: bytes

    @cached_property
    def text(self) -> str:
        """The content as text."""
        return self.content.decode()

    @cached_property
    def lines(self) -> list[str]:
        """The lines without their ends, as an editor numbers them."""
        return self.text.replace("\r\n", "\n").removesuffix("\n").split("\n") if self.content else []

    @cached_property
    def tree(self) -> ast.Module:
        """The syntax tree of a Python file."""
        return ast.parse(self.content, filename=str(self.path))

    @cached_property
    def statements(self) -> list[ast.stmt]:
        """Every statement of a Python file at any depth, in the order of the lines."""
        return list(_statements(self.tree))


@dataclass(frozen=True, eq=False)
class House:
    """The files of a checkout by what they are: the product, and the tests and proofs of it."""

    product: list[Source]
    tests: list[Source]

    @cached_property
    def python(self) -> list[Source]:
        """The Python files of the product."""
        return by_suffix(self.product, ".py")

    @cached_property
    def test_python(self) -> list[Source]:
        """The Python files of tests and proofs."""
        return by_suffix(self.tests, ".py")


def read_house(root: Path) -> House:
    """Read every file of the top packages that exist below `root`."""
    return House(product=_read_folders(root, PRODUCT), tests=_read_folders(root, TESTS))


def by_suffix(sources: list[Source], *suffixes: str) -> list[Source]:
    """Select the files whose names end in one of these suffixes."""
    return [source for source in sources if source.path.suffix in suffixes]


def is_empty_init(source: Source) -> bool:
    """Return whether a file does nothing but make its folder a package."""
    return source.path.name == "__init__.py" and not source.content.strip()


def _read_folders(root: Path, names: tuple[str, ...]) -> list[Source]:
    return [
        Source(PurePosixPath(path.relative_to(root).as_posix()), path.read_bytes())
        for name in names
        for path in sorted((root / name).rglob("*"))
        if path.is_file() and not _is_cache(path.relative_to(root))
    ]


def _is_cache(path: Path) -> bool:
    """Return whether a path is a cache or hidden, so not a part of the checkout."""
    return any(part == "__pycache__" or part.startswith(".") for part in path.parts)


def _statements(node: ast.AST) -> Iterator[ast.stmt]:
    """Walk the statements below a node, not the expressions: several times faster than `ast.walk`."""
    for field in ("body", "handlers", "cases", "orelse", "finalbody"):
        for child in getattr(node, field, ()):
            if isinstance(child, ast.stmt):
                yield child
            yield from _statements(child)
