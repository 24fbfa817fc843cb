"""Names of classes, functions and variables: the ones defined too often, and the banned ones."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Final

from tools.house.counting import Count, count_of
from tools.house.files import House, Source, by_suffix
from tools.house.identifiers import read_identifiers
from tools.house.lua import read_words

BANNED: Final = frozenset(
    {
        "told",
        "said",
        "heard",
        "meant",
        "going",
        "taken",
        "grave",
        "ward",
        "bubble",
        "apart",
        "vitals",
    }
)
EXCUSED: Final[dict[str, str]] = {}
"""Identifiers that a library or a wire contract dictates, each with the reason."""

DOORS: Final = 15
"""How often a function name may be defined before a search for it finds nothing."""

GENERAL: Final = frozenset({"run", "close", "send", "open"})
"""Names of the one method that a class exists for; they may repeat."""

_WORD: Final = re.compile(r"\w+")
_PART: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")

Definition = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def doubled_classes(house: House) -> Count:
    """List class names defined more than once, unless every definition is in a channel's own folder."""
    return _doubled(house, in_channels=False)


def doubled_channel_classes(house: House) -> Count:
    """List class names defined more than once, each time in the folder of a channel."""
    return _doubled(house, in_channels=True)


def doors(house: House) -> Count:
    """List function and method names that are defined more than fifteen times."""
    places = _places(house.python, (ast.FunctionDef, ast.AsyncFunctionDef))
    many = {name: found for name, found in places.items() if len(found) > DOORS}
    return count_of(
        [
            f"{name} x{len(found)}: {', '.join(map(str, found))}"
            for name, found in sorted(many.items(), key=lambda item: (-len(item[1]), item[0]))
            if name not in GENERAL and not _is_dunder(name)
        ]
    )


def banned_in_product(house: House) -> Count:
    """List banned identifiers in the product, once a file."""
    return count_of(_banned(house.product))


def banned_in_tests(house: House) -> Count:
    """List banned identifiers in tests and proofs, once a file."""
    return count_of(_banned(house.tests))


def lease_constants(house: House) -> Count:
    """List the constants that say how often a lease is renewed; one is enough."""
    return count_of(
        [
            f"{source.path}:{node.lineno}"
            for source in house.python
            for node in source.statements
            if isinstance(node, ast.Assign | ast.AnnAssign)
            for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
            if isinstance(target, ast.Name) and target.id == "RENEWALS_PER_LEASE"
        ]
    )


def split_identifier(name: str) -> list[str]:
    """Split at underscores and camel-case borders: `HTTPReply_row` is http, reply and row."""
    return [part.lower() for part in _PART.findall(name)]


def is_banned(name: str) -> bool:
    """Return whether a part of an identifier is a banned word."""
    return not BANNED.isdisjoint(split_identifier(name))


def _doubled(house: House, *, in_channels: bool) -> Count:
    places = _places(house.python, (ast.ClassDef,))
    return count_of(
        [
            f"{name} x{len(found)}: {', '.join(found)}"
            for name, found in sorted(places.items(), key=lambda item: (-len(item[1]), item[0]))
            if len(found) > 1 and all(map(_is_in_channel, found)) == in_channels
        ]
    )


def _places(sources: list[Source], kinds: tuple[type[Definition], ...]) -> dict[str, list[str]]:
    """Return where each name is defined, as path:line."""
    places: dict[str, list[str]] = defaultdict(list)
    for source in sources:
        for node in source.statements:
            if isinstance(node, kinds):
                places[node.name].append(f"{source.path}:{node.lineno}")
    return places


def _is_in_channel(place: str) -> bool:
    """Return whether a place is in gateway/channels/<platform>/."""
    parts = PurePosixPath(place).parts
    return parts[:2] == ("gateway", "channels") and len(parts) > 3


def _is_dunder(name: str) -> bool:
    return name.startswith("__") and name.endswith("__")


def _banned(sources: list[Source]) -> list[str]:
    """List `path:line,line: name` for each banned identifier of a file, and the banned names of modules."""
    found = [f"{path}: module {path.stem}" for path in _named_paths(sources) if is_banned(path.stem)]
    for source in by_suffix(sources, ".py", ".lua"):
        suspects = _suspect_lines(source)
        if suspects and source.path.suffix == ".py":
            found += _banned_lines(source, read_identifiers(source.tree, suspects))
        elif suspects:
            found += _banned_lines(source, read_words(source.text))
    return found


def _named_paths(sources: list[Source]) -> list[PurePosixPath]:
    """Return the modules, and the folders that hold them."""
    modules = [source.path for source in by_suffix(sources, ".py", ".lua")]
    folders = {parent for path in modules for parent in path.parents}
    return sorted({*modules, *folders})


def _suspect_lines(source: Source) -> list[int]:
    """Return the lines with a banned word, which may turn out to be in a string or a comment.

    Plain search comes first: most lines hold none, and splitting every word of them takes seconds.
    """
    lowered = source.text.lower()
    words = [word for word in BANNED if word in lowered]
    return [
        number
        for number, line in enumerate(source.lines, start=1)
        for low in [line.lower()]
        if any(word in low for word in words) and any(map(is_banned, _WORD.findall(line)))
    ]


def _banned_lines(source: Source, names: Iterator[tuple[int, str]]) -> list[str]:
    lines: dict[str, set[int]] = defaultdict(set)
    for line, name in names:
        if is_banned(name) and name not in EXCUSED:
            lines[name].add(line)
    return [f"{source.path}:{','.join(map(str, sorted(at)))}: {name}" for name, at in sorted(lines.items())]
