"""Disk space of a volume: how much of it must stay free, and how much one person uses. Everything
here blocks: call it in a thread."""

from __future__ import annotations

import contextlib
import errno
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import msgspec

from shared.ids import folder_name

PEOPLE: Final = "people"
FRESH_S: Final = 60.0  # no folder is measured more often than this to see whether a person has room
SWEPT_S: Final = 2 * 3600.0  # a sweep measures what was booked since the one before it, and more
FILE_BYTES: Final = 4096  # of the smallest file: a limit in bytes then limits the number of files
_WRITE: Final = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW
_SHARED: Final = 0o020
_TRIES: Final = 5


DISK_FULL: Final = "the disk of this server is almost full; its operator has to make room"


class DiskFull(OSError):
    """Less of a volume is free than must stay so."""


class DiskFloor(msgspec.Struct, frozen=True):
    """Free space below which nothing is written: Redis may be on the same disk, and it must be able
    to write its log. It is `size_bytes`, or `share` of the volume if that is less."""

    size_bytes: int = 0
    share: float = 0.05

    def room_bytes(self, folder: Path) -> int:
        """Return how much is free above the floor; negative below it. Raises OSError."""
        while True:
            try:
                space = os.statvfs(folder)
                break
            except FileNotFoundError:  # it is made by the first write
                if folder == folder.parent:
                    raise
                folder = folder.parent
        floor = min(self.size_bytes, int(space.f_blocks * space.f_frsize * self.share))
        return space.f_bavail * space.f_frsize - floor

    def check(self, folder: Path) -> None:
        """Raise DiskFull when too little is free."""
        if self.size_bytes and self.room_bytes(folder) < 0:
            raise DiskFull(errno.ENOSPC, os.strerror(errno.ENOSPC), str(folder))


class PersonUsage:
    """The space that each person uses on a volume, as empty files: `people/<person>/<folder>` is as
    long as that folder of theirs is large. Setting a length is one step, so a crash leaves no half
    of a number, and a sum needs no look into a folder. `measure` returns the size of a folder, 0
    for one that is gone. Without a limit (0) nothing is booked."""

    def __init__(self, root: Path, limit_bytes: int, measure: Callable[[str], int]) -> None:
        self._people = root / PEOPLE
        self._limit_bytes = limit_bytes
        self._measure = measure

    def book(self, person: str, folder: str, size_bytes: int) -> int:
        """Set the size of a folder; return by how much its person is over the limit. Raises OSError.

        Book before you write, and book again what remained if this was too much. Two writers at
        once each see the other's booking: they may both be refused, and never both be accepted."""
        if not self._limit_bytes:
            return 0
        self._set(self._people / folder_name(person) / folder, size_bytes)
        return self.over_bytes(person)

    def over_bytes(self, person: str) -> int:
        """Return by how much a person is over the limit. Before that is anything but 0, their
        folders are measured again: files expire, and chats are forgotten. Raises OSError."""
        if not self._limit_bytes:
            return 0
        place = self._people / folder_name(person)
        over = sum(size for _, size, _ in _bookings(place)) - self._limit_bytes
        if over <= 0:
            return 0
        for folder, size_bytes, booked_s in _bookings(place):
            if booked_s < time.time() - FRESH_S:
                self._set(place / folder, self._measured(folder, size_bytes))
        return max(0, sum(size for _, size, _ in _bookings(place)) - self._limit_bytes)

    def sweep(self, within_s: float = SWEPT_S) -> None:
        """Correct what was booked `within_s`: a worker that was killed has written more, or less,
        than it had booked. Raises OSError."""
        for person in _inside(self._people):
            for folder, size_bytes, booked_s in _bookings(person):
                if booked_s > time.time() - within_s:
                    now_bytes = self._measured(folder, size_bytes)
                    if now_bytes != size_bytes:
                        self._set(person / folder, now_bytes)
            with contextlib.suppress(OSError):
                person.rmdir()

    def drop(self, folder: str) -> None:
        """Remove the booking of a folder that was deleted, whoever its person is."""
        for person in _inside(self._people):
            (person / folder).unlink(missing_ok=True)

    def _measured(self, folder: str, booked_bytes: int) -> int:
        """Measure a folder again. One that cannot be measured keeps its booking, and must not refuse
        what its person writes elsewhere."""
        try:
            return self._measure(folder)
        except OSError:
            return booked_bytes

    def _set(self, booking: Path, size_bytes: int) -> None:
        if size_bytes <= 0:
            booking.unlink(missing_ok=True)
            return
        shared = self._people.parent.stat().st_mode & _SHARED
        for tries in range(_TRIES, 0, -1):
            try:
                handle = os.open(booking, _WRITE, 0o660 if shared else 0o600)
                break
            except FileNotFoundError:  # new, or a sweep has just removed the empty folder
                if tries == 1:
                    raise
                for made in (self._people, booking.parent):
                    with contextlib.suppress(FileExistsError, FileNotFoundError):
                        made.mkdir(mode=0o700)
                        made.chmod(0o770 if shared else 0o700)
        try:
            os.ftruncate(handle, size_bytes)
            os.utime(handle)
        finally:
            os.close(handle)


def _inside(folder: Path) -> Iterator[Path]:
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        yield from list(folder.iterdir())


def _bookings(place: Path) -> list[tuple[str, int, float]]:
    """Return folder, size and time of each booking of a person."""
    found = []
    with contextlib.suppress(FileNotFoundError), os.scandir(place) as listed:
        for booking in listed:
            with contextlib.suppress(FileNotFoundError):
                info = booking.stat(follow_symlinks=False)
                found.append((booking.name, info.st_size, info.st_mtime))
    return found
