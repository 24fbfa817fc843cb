"""Files of the operator that are kept in memory and read again when they change, without a
restart."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Final, Generic, TypeVar

from shared.clock import Clock

LOOK_EVERY_S: Final = 1.0
"""How often files are looked at, at most. A look is one `stat` a file, whatever the number of
turns."""

T = TypeVar("T")


class CheckInterval:
    """Says yes at most once in LOOK_EVERY_S."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._next = float("-inf")

    def due(self) -> bool:
        now = self._clock.monotonic()
        if now < self._next:
            return False
        self._next = now + LOOK_EVERY_S
        return True


class WatchedFile(Generic[T]):
    """What a file holds. A file that breaks or cannot be read any more keeps its last good content;
    one that is gone has none.

    `load` reads it and raises OSError or ValueError; `tell` hears of either once, until something
    changes.
    """

    def __init__(self, path: Path, load: Callable[[Path], T], tell: Callable[[Exception], None]) -> None:
        self._path = path
        self._load = load
        self._report = tell
        self._mark: tuple[int, ...] | None = None
        self._away = False
        self._content: T | None = None

    def read_if_changed(self) -> T | None:
        """The content as of now; reads the file only if its times, its size or its inode
        changed."""
        try:
            info = os.stat(self._path)
            mark = (info.st_mtime_ns, info.st_ctime_ns, info.st_size, info.st_ino)
            if mark != self._mark:
                self._reload(mark)
            self._away = False
        except (FileNotFoundError, NotADirectoryError):
            self._mark, self._content, self._away = None, None, False
        except OSError as exc:
            if not self._away:
                self._away = True
                self._report(exc)
        return self._content

    def _reload(self, mark: tuple[int, ...]) -> None:
        try:
            self._content = self._load(self._path)
        except ValueError as exc:
            self._report(exc)
        self._mark = mark  # also of a broken one: it is tried again when somebody has mended it
