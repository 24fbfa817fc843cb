"""The folder of one session: reads, writes and lists files within a quota. Everything here
blocks."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import secrets
import stat
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import msgspec

from shared.errors import ToolFailed
from worker.agent.tools.tool import FileEntry
from worker.guards.openat import OWNER_ONLY, Access, check_plain_file, open_folder_beneath, read_file_beneath
from worker.guards.paths import DEPTH_LIMIT, name_fault
from worker.guards.threads import StopSignal

RESULTS: Final = "results"
_TEMPORARY: Final = (".shoal-", ".part")
_ABANDONED_S: Final = 3600.0
_LOCK_WAIT_S: Final = 0.01
_CREATE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
_LOCK: Final = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW


class Quota(msgspec.Struct, frozen=True):
    """Limits of one session's folder: total bytes, number of files and folders, and the age at
    which results of tools expire."""

    size_bytes: int = 64 * 1024 * 1024
    files: int = 2000
    results_s: float = 7 * 86400.0


class _FolderEntry(msgspec.Struct, frozen=True):
    parts: tuple[str, ...]
    size_bytes: int
    changed: float
    is_folder: bool
    is_plain: bool


class SessionFolder:
    """The folder `root/name`, created when something is first written. `stop` ends the work between
    two steps.

    A lock file next to it admits one writer at a time across all processes, because the quota is
    measured before each write: two writers at once could each stay within it and exceed it
    together.
    """

    def __init__(self, root: Path, name: str, quota: Quota, access: Access = OWNER_ONLY) -> None:
        self._root = root
        self._name = name
        self.quota: Final = quota
        self._access = access

    @property
    def path(self) -> Path:
        """Path of the folder, which may not exist yet."""
        return self._root / self._name

    @property
    def _lock(self) -> Path:
        return self._root / f"{self._name}.lock"

    def exists(self, name: str) -> bool:
        """Return whether the top of the folder has anything of this name, even a link. False if the
        folder cannot be read."""
        return os.path.lexists(f"{self._root}/{self._name}/{name}")

    def create(self, stop: StopSignal) -> Path:
        """Create the folder and return its path, for a sandbox. Raises OSError."""
        stop.check()
        with self._open_folder(make=True):
            return self.path

    def read_file(self, stop: StopSignal, parts: Sequence[str], limit_bytes: int) -> bytes:
        """Return the bytes of a file. Raises OSError and ToolFailed as `read_file_beneath` does."""
        stop.check()
        if not parts:
            raise IsADirectoryError(errno.EISDIR, "a folder")
        with self._open_folder() as top:
            return read_file_beneath(top, parts, limit_bytes)[0]

    def write_file(self, stop: StopSignal, parts: Sequence[str], data: bytes, was: bytes | None) -> None:
        """Replace a whole file atomically: readers see the old one or the new one. With `was`,
        write only if the file still holds that, or already holds `data`. Raises OSError, and
        ToolFailed for a file that has changed or a folder that would exceed its quota."""
        self._make_root()
        with self._hold_lock(stop), self._open_folder(make=True) as top:
            old, new_files = _stat_old_file(top, parts)
            if was is not None:
                limit_bytes = max(len(was), len(data), old.st_size if old else 0)
                now = None if old is None else read_file_beneath(top, parts, limit_bytes)[0]
                if now == data:  # a repeated attempt whose first write succeeded
                    return
                if now != was:
                    raise ToolFailed(f"{'/'.join(parts)!r} is not as you read it any more; read it again")
            self._free_quota(stop, top, parts, len(data) - (old.st_size if old else 0), new_files)
            with open_folder_beneath(top, parts[:-1], make=self._access) as at:
                kept = stat.S_IMODE(old.st_mode) & self._access.folder if old else 0
                _replace_file(stop, at, parts[-1], data, self._access.file | kept)

    def list_entries(self, stop: StopSignal) -> list[FileEntry]:
        """Return the readable files, and the folders (with a final `/`), without hidden ones. Empty
        if the folder does not exist."""
        try:
            with self._open_folder() as top:
                return [
                    _file_entry(found)
                    for found in self._walk_entries(stop, top, hidden=False)
                    if found.is_folder or found.is_plain
                ]
        except FileNotFoundError:
            return []

    @contextlib.contextmanager
    def open_locked(self, stop: StopSignal) -> Iterator[int]:
        """Yield the handle of the folder while holding its lock. Raises FileNotFoundError if it was
        never created, and OSError."""
        os.stat(self.path, follow_symlinks=False)
        with self._hold_lock(stop), self._open_folder() as top:
            yield top

    def remove_empty(self) -> None:
        """Remove the folder, if empty, and its lock. Call it with the lock held."""
        try:
            os.rmdir(self.path)
            os.unlink(self._lock)
        except OSError:
            return  # it is no longer empty, or the volume has become unavailable

    def _make_root(self) -> None:
        self._root.mkdir(mode=self._access.folder, parents=True, exist_ok=True)

    @contextlib.contextmanager
    def _open_folder(self, *, make: bool = False) -> Iterator[int]:
        """Yield the handle of the folder. Links on the operator's path to the root are followed,
        below it none are."""
        if make:
            self._make_root()
        root = os.open(self._root, os.O_RDONLY | os.O_DIRECTORY)
        try:
            if make:
                self._access.grant(root)
            with open_folder_beneath(root, [self._name], make=self._access if make else None) as top:
                if make:
                    self._access.grant(top)  # it may be older than the setting `workspace.group`
                yield top
        finally:
            os.close(root)

    @contextlib.contextmanager
    def _hold_lock(self, stop: StopSignal) -> Iterator[None]:
        lock = self._acquire_lock(stop)
        try:
            yield
        finally:
            os.close(lock)

    def _acquire_lock(self, stop: StopSignal) -> int:
        while True:
            lock = os.open(self._lock, _LOCK, OWNER_ONLY.file)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                # `remove_empty` may have deleted the file between open and flock: then another writer
                # holds the lock on a new file of that name, and this one locks nothing.
                if os.path.samestat(os.fstat(lock), os.stat(self._lock)):
                    return lock
            except (BlockingIOError, FileNotFoundError):
                pass
            except BaseException:
                os.close(lock)
                raise
            os.close(lock)
            stop.wait(_LOCK_WAIT_S)

    def _free_quota(self, stop: StopSignal, top: int, parts: Sequence[str], more_bytes: int, more_files: int) -> None:
        """Delete results of tools that have expired, then the oldest ones until the new file fits.
        Raises ToolFailed if it still does not."""
        kept: list[_FolderEntry] = []
        used_bytes, files = more_bytes, more_files
        now = time.time()
        for found in self._walk_entries(stop, top, hidden=True):
            is_result = found.parts[0] == RESULTS and found.is_plain and found.parts != tuple(parts)
            limit_s = self.quota.results_s if is_result else _ABANDONED_S if _is_temporary(found) else None
            if limit_s is not None and found.changed < now - limit_s and _remove_file(top, found.parts):
                continue
            used_bytes, files = used_bytes + found.size_bytes, files + 1
            if is_result:
                kept.append(found)
        for found in sorted(kept, key=lambda found: found.changed):
            if used_bytes <= self.quota.size_bytes and files <= self.quota.files:
                return
            if _remove_file(top, found.parts):
                used_bytes, files = used_bytes - found.size_bytes, files - 1
        path = "/".join(parts)
        if used_bytes > self.quota.size_bytes:
            raise ToolFailed(
                f"{path!r} is not written: the workspace would have {used_bytes:,} bytes; at most "
                f"{self.quota.size_bytes:,} are allowed. Make other files smaller, or write less"
            )
        if files > self.quota.files:
            raise ToolFailed(
                f"{path!r} is not written: the workspace would have {files:,} files and folders; at most "
                f"{self.quota.files:,} are allowed. Write into an existing file"
            )

    def _walk_entries(self, stop: StopSignal, top: int, *, hidden: bool) -> Iterator[_FolderEntry]:
        """Yield everything in the folder, up to somewhat more than the quota. With `hidden`, it
        includes entries that file tools cannot reach because of their name or depth: they use the
        quota too."""
        left = self.quota.files * 2 + 1000
        waiting: list[tuple[str, ...]] = [()]
        while waiting and left > 0:
            inside = waiting.pop()
            stop.check()
            try:
                with open_folder_beneath(top, inside) as at, os.scandir(at) as listed:
                    for entry in listed:
                        if (left := left - 1) < 0:
                            break
                        if (found := _stat_entry(inside, entry, hidden)) is None:
                            continue
                        yield found
                        if found.is_folder and len(found.parts) < DEPTH_LIMIT * 2:
                            waiting.append(found.parts)
            except OSError:
                if not inside:
                    raise  # the workspace itself is unavailable
                continue  # removed meanwhile, or swapped for something else


def _file_entry(found: _FolderEntry) -> FileEntry:
    path = "/".join(found.parts)
    return FileEntry(f"{path}/") if found.is_folder else FileEntry(path, found.size_bytes)


def _stat_entry(inside: tuple[str, ...], entry: os.DirEntry[str], hidden: bool) -> _FolderEntry | None:
    if not hidden and (entry.name.startswith(".") or name_fault(entry.name) or len(inside) >= DEPTH_LIMIT):
        return None
    try:
        info = entry.stat(follow_symlinks=False)
    except OSError:
        return None
    is_folder = stat.S_ISDIR(info.st_mode)
    is_plain = stat.S_ISREG(info.st_mode) and info.st_nlink == 1
    return _FolderEntry((*inside, entry.name), 0 if is_folder else info.st_size, info.st_mtime, is_folder, is_plain)


def _stat_old_file(top: int, parts: Sequence[str]) -> tuple[os.stat_result | None, int]:
    """Return the status of the file that will be replaced, if it exists, and the number of files
    and folders that will be new. Raises OSError for anything but a plain file."""
    for depth in range(len(parts) - 1, 0, -1):
        with contextlib.suppress(FileNotFoundError), open_folder_beneath(top, parts[:depth]) as at:
            return (None, len(parts) - depth) if depth < len(parts) - 1 else _stat_plain_file(at, parts[-1])
    return (None, len(parts)) if len(parts) > 1 else _stat_plain_file(top, parts[0])


def _stat_plain_file(at: int, name: str) -> tuple[os.stat_result | None, int]:
    try:
        info = os.stat(name, dir_fd=at, follow_symlinks=False)
    except FileNotFoundError:
        return None, 1
    check_plain_file(info)
    return info, 0


def _replace_file(stop: StopSignal, at: int, name: str, data: bytes, mode: int) -> None:
    """Write a file under a random name, then rename it. A rename replaces a link that has the final
    name by then; it never follows it."""
    temporary = f"{_TEMPORARY[0]}{secrets.token_hex(8)}{_TEMPORARY[1]}"
    try:
        with open(os.open(temporary, _CREATE, mode, dir_fd=at), "wb") as file:
            os.fchmod(file.fileno(), mode)  # the umask has cut the mode given to open
            file.write(data)
        stop.check()  # the rename is the step that cannot be undone
        os.replace(temporary, name, src_dir_fd=at, dst_dir_fd=at)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary, dir_fd=at)
        raise


def _is_temporary(found: _FolderEntry) -> bool:
    name = found.parts[-1]
    return found.is_plain and name.startswith(_TEMPORARY[0]) and name.endswith(_TEMPORARY[1])


def _remove_file(top: int, parts: Sequence[str]) -> bool:
    try:
        with open_folder_beneath(top, parts[:-1]) as at:
            os.unlink(parts[-1], dir_fd=at)
    except OSError:
        return False
    return True
