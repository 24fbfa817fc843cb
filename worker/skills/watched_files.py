"""Files of the operator, kept in memory and read again when they change, without a restart."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Final, Generic, TypeVar

from shared.clock import Clock

LOOK_EVERY_S: Final = 1.0  # one `stat` a file, however many turns run
T = TypeVar("T")


class CheckInterval:
    """Limits checks to one in LOOK_EVERY_S."""

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
    """The content of a file. One that breaks keeps its last good content; a deleted one has none.
    `load` raises OSError or ValueError; `report` is called once for either."""

    def __init__(self, path: Path, load: Callable[[Path], T], report: Callable[[Exception], None]) -> None:
        self._path = path
        self._load = load
        self._report = report
        self._mark: tuple[int, ...] | None = None
        self._away = False
        self._content: T | None = None

    def read_if_changed(self) -> T | None:
        """Return the content; the file is read only if its times, its size or its inode changed."""
        try:
            info = os.stat(self._path)
            mark = (info.st_mtime_ns, info.st_ctime_ns, info.st_size, info.st_ino)
            if mark != self._mark:
                try:
                    self._content = self._load(self._path)
                except ValueError as exc:
                    self._report(exc)
                self._mark = mark  # also for a broken file: it is read again only once it has changed
            self._away = False
        except (FileNotFoundError, NotADirectoryError):
            self._mark, self._content, self._away = None, None, False
        except OSError as exc:
            if not self._away:
                self._away = True
                self._report(exc)
        return self._content
