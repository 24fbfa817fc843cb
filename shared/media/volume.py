"""Media on a volume that gateways and workers share: one folder a session.

Existence and time of a file are the only state, so nothing has to be kept in step with the store: a
file is deleted `days` after that time, and one that no message has named yet has a time of so long
ago that an hour is left."""

from __future__ import annotations

import contextlib
import math
import os
import secrets
import time
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO, Final

from shared.ids import folder_name, person_of
from shared.media.disk import FILE_BYTES, PEOPLE, DiskFloor, PersonUsage
from shared.media.files import (
    DAY_S,
    MB,
    PART_S,
    UNNAMED_S,
    Part,
    StoredFile,
    chat_has_too_much,
    person_has_too_much,
)
from shared.media.reference import MediaRef
from shared.settings import MediaSettings

_PART: Final = ".part-"
_CREATE: Final = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
_READ: Final = os.O_RDONLY | os.O_NOFOLLOW
_SHARED: Final = 0o020
_TRIES: Final = 5


class VolumeFiles:
    """MediaFiles below `media.dir`. Files are readable by their owner alone, and by the group where
    that folder is group-writable, as on a volume that processes of several users share."""

    def __init__(self, settings: MediaSettings, floor: DiskFloor) -> None:
        self._root = settings.dir.absolute()
        self._settings = settings
        self._floor = floor
        self._people = PersonUsage(self._root, settings.person_mb * MB, self._measure)

    def begin(self, session: str) -> Part:
        self._floor.check(self._root)
        if self._people.over_bytes(person_of(session)):
            raise person_has_too_much(self._settings)
        self._root.mkdir(mode=0o700, parents=True, exist_ok=True)
        # The permissions of the folder decide whether the group may read.
        shared = self._root.stat().st_mode & _SHARED
        folder = self._folder(session)
        part = folder / f"{_PART}{secrets.token_hex(8)}"
        for tries in range(_TRIES, 0, -1):
            for made in (folder.parent, folder):
                with contextlib.suppress(FileExistsError, FileNotFoundError):
                    made.mkdir(mode=0o700)
                    made.chmod(0o770 if shared else 0o700)
            try:
                handle = os.open(part, _CREATE, 0o600)
                break
            except FileNotFoundError:  # a sweep has just taken the empty folder away
                if tries == 1:
                    raise
        os.fchmod(handle, 0o660 if shared else 0o600)
        return Part(os.fdopen(handle, "w+b"), part)

    def keep(self, session: str, ref: MediaRef, part: Part, data: bytes, *, named: bool) -> None:
        assert part.path is not None
        folder = self._folder(session)
        if _size_bytes(folder) > self._settings.session_mb * MB:  # this one is counted already
            raise chat_has_too_much(self._settings)
        self._book(session, len(data))
        # Durable before it has its name: no reference points to a file that a power cut emptied.
        os.fsync(part.file.fileno())
        kept = folder / ref.file
        if not named:
            with contextlib.suppress(FileNotFoundError):
                named = not self._is_unnamed(kept.stat().st_mtime)
        if not named:
            at_s = time.time() - self._unnamed_age_s()
            os.utime(part.path, (at_s, at_s))
        os.replace(part.path, kept)

    def find(self, session: str, file: str) -> StoredFile | None:
        try:
            info = os.stat(self._folder(session) / file, follow_symlinks=False)
        except FileNotFoundError:
            return None
        changed_s = info.st_mtime
        if self._is_over(changed_s):
            return None
        return StoredFile(info.st_size, not self._is_unnamed(changed_s))

    def name(self, session: str, file: str, size_bytes: int) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.utime(self._folder(session) / file)

    def open(self, session: str, file: str) -> BinaryIO:
        return open(os.open(self._folder(session) / file, _READ), "rb")

    def forget(self, folder: str, before_s: float) -> int:
        def is_older(_: str, changed_s: float) -> bool:
            aged_s = self._unnamed_age_s() if self._is_unnamed(changed_s) else 0.0
            return changed_s + aged_s < before_s

        return _remove(self._place(folder), is_older)

    def expire(self) -> int:
        """See MediaFiles; also count again what each person has."""
        gone = 0
        for shard in _inside(self._root):
            for folder in _inside(shard):
                if shard.name != PEOPLE:
                    gone += _remove(folder, self._is_done)
            _drop_if_empty(shard)
        self._people.sweep(math.inf)
        _drop_if_empty(self._root / PEOPLE)
        return gone

    def _is_over(self, changed_s: float) -> bool:
        return changed_s < time.time() - self._settings.days * DAY_S

    def _is_done(self, name: str, changed_s: float) -> bool:
        return self._is_over(changed_s) or (name.startswith(_PART) and changed_s < time.time() - PART_S)

    def _unnamed_age_s(self) -> float:
        """Return how far in the past the time of a new file lies that no message has named."""
        return self._settings.days * DAY_S - UNNAMED_S

    def _is_unnamed(self, changed_s: float) -> bool:
        """Tell whether no message has named a file; also True in the last hour of any other."""
        return changed_s <= time.time() - self._unnamed_age_s()

    def _measure(self, folder: str) -> int:
        """Return the size of a session's folder, for its person, without what has expired."""
        _remove(self._place(folder), self._is_done)
        return _size_bytes(self._place(folder), FILE_BYTES)

    def _book(self, session: str, part_bytes: int) -> None:
        """Count a finished upload against its person. Raises MediaTooBig."""
        person = person_of(session)
        folder = folder_name(session)
        used = _size_bytes(self._folder(session), FILE_BYTES)
        if self._people.book(person, folder, used):
            self._people.book(person, folder, used - max(part_bytes, FILE_BYTES))
            raise person_has_too_much(self._settings)

    def _folder(self, session: str) -> Path:
        return self._place(folder_name(session))

    def _place(self, folder: str) -> Path:
        return self._root / folder[:2] / folder


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as found:
            return list(found)
    except (FileNotFoundError, NotADirectoryError):
        return []


def _inside(folder: Path) -> list[Path]:
    return [Path(one.path) for one in _entries(folder) if one.is_dir(follow_symlinks=False)]


def _remove(folder: Path, which: Callable[[str, float], bool]) -> int:
    """Delete files for which `which(name, time of change in s)` is true, and an empty folder."""
    gone = 0
    for entry in _entries(folder):
        with contextlib.suppress(FileNotFoundError):
            if which(entry.name, entry.stat(follow_symlinks=False).st_mtime):
                os.unlink(entry.path)
                gone += 1
    _drop_if_empty(folder)
    return gone


def _size_bytes(folder: Path, least_bytes: int = 0) -> int:
    """Return the size of a folder's files, each counted as `least_bytes` or more."""
    size_bytes = 0
    for entry in _entries(folder):
        with contextlib.suppress(FileNotFoundError):
            size_bytes += max(entry.stat(follow_symlinks=False).st_size, least_bytes)
    return size_bytes


def _drop_if_empty(folder: Path) -> None:
    with contextlib.suppress(OSError):
        folder.rmdir()
