"""The folder of one session: files within a quota. Everything here blocks."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import secrets
import stat
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

import msgspec

from shared.errors import ToolFailed
from worker.agent.tools.tool import FileEntry
from worker.guards import openat
from worker.guards.paths import DEPTH_LIMIT, name_fault
from worker.guards.threads import StopSignal

Parts = Sequence[str]
RESULTS: Final = "results"
_TEMPORARY: Final = (".shoal-", ".part")
_ABANDONED_S: Final = 3600.0
_LOCK_WAIT_S: Final = 0.01
_CREATE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
_LOCK: Final = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW


class Quota(msgspec.Struct, frozen=True):
    """Limits of a session's folder: bytes, files and folders, and the age of results of tools."""

    size_bytes: int = 64 * 1024 * 1024
    files: int = 2000
    results_s: float = 7 * 86400.0


class SessionFolder:
    """The folder `root/name`, made by the first write; `stop` ends the work between two steps. A
    lock file next to it admits one writer at a time across all processes, because the quota is
    measured before each write: two at once could each stay within it and exceed it together."""

    def __init__(self, root: Path, name: str, quota: Quota, access: openat.Access = openat.OWNER_ONLY) -> None:
        self._root = root
        self._name = name
        self._lock = f"{root}/{name}.lock"
        self.quota: Final = quota
        self._access = access

    @property
    def path(self) -> Path:
        """The folder, which may not exist yet."""
        return self._root / self._name

    def exists(self, name: str) -> bool:
        """Return whether the folder has this name, even as a link; False if it cannot be read."""
        return os.path.lexists(f"{self._root}/{self._name}/{name}")

    def create(self, stop: StopSignal) -> Path:
        """Create the folder and return its path, for a sandbox. Raises OSError."""
        stop.check()
        with self._open_folder(make=True):
            return self.path

    def read_file(self, stop: StopSignal, parts: Parts, limit_bytes: int) -> bytes:
        """Return the bytes of a file. Raises OSError and ToolFailed as `read_file_beneath` does."""
        stop.check()
        if not parts:
            raise IsADirectoryError(errno.EISDIR, "a folder")
        with self._open_folder() as top:
            return openat.read_file_beneath(top, parts, limit_bytes)

    def write_file(self, stop: StopSignal, parts: Parts, data: bytes, was: bytes | None) -> None:
        """Replace a whole file atomically: readers see the old one or the new one. With `was`,
        write only if the file still holds that, or already holds `data`. Raises OSError, and
        ToolFailed for a file that has changed or a folder that would exceed its quota."""
        self._root.mkdir(mode=self._access.folder, parents=True, exist_ok=True)
        with self._hold_lock(stop), self._open_folder(make=True) as top:
            old, new_files = _stat_old_file(top, parts)
            if was is not None:
                limit_bytes = max(len(was), len(data), old.st_size if old else 0)
                now = None if old is None else openat.read_file_beneath(top, parts, limit_bytes)
                if now == data:  # a repeated attempt whose first write succeeded
                    return
                if now != was:
                    why = "is not as you read it any more; read it again"
                    raise ToolFailed(f"{'/'.join(parts)!r} {why}")
            self._free_quota(stop, top, parts, len(data) - (old.st_size if old else 0), new_files)
            with openat.open_folder_beneath(top, parts[:-1], make=self._access) as at:
                kept = stat.S_IMODE(old.st_mode) & self._access.folder if old else 0
                _replace_file(stop, at, parts[-1], data, self._access.file | kept)

    def list_entries(self, stop: StopSignal) -> list[FileEntry]:
        """Return readable files and folders (with a final `/`), none hidden; empty without any."""
        entries = []
        with contextlib.suppress(FileNotFoundError), self._open_folder() as top:
            for found in self._walk_entries(stop, top, _is_hidden):
                path = "/".join(found.parts)
                if found.is_folder:
                    entries.append(FileEntry(f"{path}/"))
                elif _is_plain(found):
                    entries.append(FileEntry(path, found.info.st_size))
        return entries

    @contextlib.contextmanager
    def open_locked(self, stop: StopSignal) -> Iterator[int]:
        """Yield the folder's handle under its lock. Raises OSError, FileNotFoundError if none."""
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

    @contextlib.contextmanager
    def _open_folder(self, *, make: bool = False) -> Iterator[int]:
        """Yield the folder's handle. Links are followed on the operator's path to it alone."""
        if make:
            self._root.mkdir(mode=self._access.folder, parents=True, exist_ok=True)
        root = os.open(self._root, os.O_RDONLY | os.O_DIRECTORY)
        try:
            if make:
                self._access.grant(root)
            access = self._access if make else None
            with openat.open_folder_beneath(root, [self._name], access) as top:
                if make:
                    self._access.grant(top)  # it may be older than the setting `workspace.group`
                yield top
        finally:
            os.close(root)

    @contextlib.contextmanager
    def _hold_lock(self, stop: StopSignal) -> Iterator[None]:
        while True:
            lock = os.open(self._lock, _LOCK, openat.OWNER_ONLY.file)
            try:
                held = False
                with contextlib.suppress(BlockingIOError, FileNotFoundError):
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    # `remove_empty` may have deleted the file between open and flock: then another
                    # writer holds the lock on a new file of that name, and this one locks nothing.
                    held = os.path.samestat(os.fstat(lock), os.stat(self._lock))
                if held:
                    yield
                    return
            finally:
                os.close(lock)
            stop.wait(_LOCK_WAIT_S)

    def _free_quota(self, stop: StopSignal, top: int, parts: Parts, used_bytes: int, files: int) -> None:
        """Delete expired results, then the oldest, until the new file fits. Raises ToolFailed."""
        results: list[openat.TreeEntry] = []
        now = time.time()
        for found in self._walk_entries(stop, top, _is_too_deep):
            plain, name = _is_plain(found), found.parts[-1]
            is_result = plain and found.parts[0] == RESULTS and found.parts != tuple(parts)
            abandoned = plain and name.startswith(_TEMPORARY[0]) and name.endswith(_TEMPORARY[1])
            limit_s = self.quota.results_s if is_result else _ABANDONED_S if abandoned else None
            if limit_s is not None and found.info.st_mtime < now - limit_s:
                with contextlib.suppress(OSError):
                    openat.remove_beneath(top, found)
                    continue
            used_bytes, files = used_bytes + _size_bytes(found), files + 1
            if is_result:
                results.append(found)
        for found in sorted(results, key=lambda found: found.info.st_mtime):
            if used_bytes <= self.quota.size_bytes and files <= self.quota.files:
                return
            with contextlib.suppress(OSError):
                openat.remove_beneath(top, found)
                used_bytes, files = used_bytes - _size_bytes(found), files - 1
        refused = f"{'/'.join(parts)!r} is not written: the workspace would have"
        if used_bytes > self.quota.size_bytes:
            raise ToolFailed(
                f"{refused} {used_bytes:,} bytes; at most {self.quota.size_bytes:,} are allowed. "
                "Make other files smaller, or write less"
            )
        if files > self.quota.files:
            raise ToolFailed(
                f"{refused} {files:,} files and folders; at most {self.quota.files:,} are allowed. "
                "Write into an existing file"
            )

    def _walk_entries(
        self, stop: StopSignal, top: int, skip: Callable[[tuple[str, ...], str], object]
    ) -> Iterator[openat.TreeEntry]:
        """Yield what is in the folder, up to somewhat more than the quota."""
        return openat.walk_beneath(top, check=stop.check, limit=self.quota.files * 2 + 1000, skip=skip)


def _is_hidden(inside: tuple[str, ...], name: str) -> object:
    return name.startswith(".") or name_fault(name) or len(inside) >= DEPTH_LIMIT


def _is_too_deep(inside: tuple[str, ...], name: str) -> bool:
    """Tell what the quota does not count; it counts what file tools cannot reach by its name."""
    return len(inside) >= DEPTH_LIMIT * 2


def _is_plain(found: openat.TreeEntry) -> bool:
    return stat.S_ISREG(found.info.st_mode) and found.info.st_nlink == 1


def _size_bytes(found: openat.TreeEntry) -> int:
    return 0 if found.is_folder else found.info.st_size


def _stat_old_file(top: int, parts: Parts) -> tuple[os.stat_result | None, int]:
    """Return the status of the file that will be replaced, if it exists, and the number of files
    and folders that will be new. Raises OSError for anything but a plain file."""
    for depth in range(len(parts) - 1, 0, -1):
        with contextlib.suppress(FileNotFoundError), openat.open_folder_beneath(top, parts[:depth]) as at:
            return (None, len(parts) - depth) if depth < len(parts) - 1 else _stat_plain_file(at, parts[-1])
    return (None, len(parts)) if len(parts) > 1 else _stat_plain_file(top, parts[0])


def _stat_plain_file(at: int, name: str) -> tuple[os.stat_result | None, int]:
    try:
        info = os.stat(name, dir_fd=at, follow_symlinks=False)
    except FileNotFoundError:
        return None, 1
    openat.check_plain_file(info)
    return info, 0


def _replace_file(stop: StopSignal, at: int, name: str, data: bytes, mode: int) -> None:
    """Write a file and rename it: the rename replaces a link of that name, and never follows it."""
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
