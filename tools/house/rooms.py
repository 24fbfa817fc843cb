"""The rooms of a package, the imports between them, and folders that are too full."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import cache
from pathlib import PurePosixPath
from typing import Final

from tools.house.counting import Count, count_of
from tools.house.files import CODE, House, by_suffix, is_empty_init
from tools.house.graph import Graph, back_edges, circles, count_floors
from tools.house.imports import import_graph

LOOSE: Final = 15
"""How many files may lie directly in a folder before they want folders of their own."""


@cache
def draw_rooms(house: House, package: str) -> Graph:
    """Return the rooms of a package, each with the rooms that it imports.

    Rooms are the folders and files directly in the package, without its `__init__`. A folder that
    holds folders alone, like one of many chat platforms, is not a room; the folders in it are.
    """
    rooms = _rooms(house, package)
    drawn: Graph = {room: set() for room in rooms.values()}
    for importer, imported in import_graph(house).items():
        if importer in rooms:
            drawn[rooms[importer]] |= {rooms[path] for path in imported if path in rooms}
    return {room: others - {room} for room, others in drawn.items()}


def rooms(package: str) -> Callable[[House], Count]:
    """Return a counter of the rooms of a package."""
    return lambda house: count_of(sorted(draw_rooms(house, package)))


def floors(package: str) -> Callable[[House], Count]:
    """Return a counter of the floors on which the rooms of a package lie."""
    return lambda house: Count(count_floors(draw_rooms(house, package)))


def arrows(package: str) -> Callable[[House], Count]:
    """Return a counter of the pairs of rooms of which one imports the other."""
    return lambda house: count_of(
        [
            f"{room} -> {other}"
            for room, others in sorted(draw_rooms(house, package).items())
            for other in sorted(others)
        ]
    )


def arrows_up(package: str) -> Callable[[House], Count]:
    """Return a counter of the arrows that go against the floors."""
    return lambda house: count_of([f"{room} -> {other}" for room, other in back_edges(draw_rooms(house, package))])


def file_circles(house: House) -> Count:
    """List the groups of files of the product that import each other."""
    return count_of([", ".join(circle) for circle in circles(import_graph(house))])


def full_folders(house: House) -> Count:
    """List folders with more than fifteen loose files of Python, Lua or JavaScript; an empty `__init__.py` is none."""
    loose = Counter(
        source.path.parent.as_posix() for source in by_suffix(house.product, *CODE) if not is_empty_init(source)
    )
    return count_of([f"{folder}: {number}" for folder, number in loose.most_common() if number > LOOSE])


def _rooms(house: House, package: str) -> dict[str, str]:
    """Return the files of a package by path, each with its room; an empty `__init__.py` has none."""
    folder = _find_package(house, package)
    files = [source.path for source in house.python if not is_empty_init(source)]
    holders = {path.parent for path in files}
    return {
        path.as_posix(): _room_of(path, folder, holders)
        for path in files
        if folder in path.parents and path != folder / "__init__.py"
    }


def _find_package(house: House, name: str) -> PurePosixPath:
    """Return the top package of this name, or the folder inside another one that it once was."""
    folders = {parent for source in house.python for parent in source.path.parents if parent.name == name}
    return min(folders, key=lambda folder: (len(folder.parts), folder), default=PurePosixPath(name))


def _room_of(path: PurePosixPath, folder: PurePosixPath, holders: set[PurePosixPath]) -> str:
    """Return the file's ancestor directly in the folder, or deeper where that holds folders alone."""
    depth = len(folder.parts) + 1
    while depth < len(path.parts) and PurePosixPath(*path.parts[:depth]) not in holders:
        depth += 1
    return PurePosixPath(*path.parts[:depth]).as_posix()
