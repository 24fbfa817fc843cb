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
from typing import Final, Literal

import msgspec

from shared.errors import ToolFailed
from shared.ids import folder_name
from shared.media.disk import DiskFloor, PersonUsage
from worker.agent.tools.tool import FileEntry
from worker.guards import openat
from worker.guards.paths import DEPTH_LIMIT, name_fault
from worker.guards.threads import StopSignal

Parts = Sequence[str]
Granted = Literal["", "read", "write"]
RESULTS: Final = "results"
_PRIVATE: Final = frozenset((RESULTS, "inbox", "skills", "heartbeat.md"))
_TEMPORARY: Final = (".shoal-", ".part")
_ABANDONED_S: Final = 3600.0
_LOCK_WAIT_S: Final = 0.01
_CREATE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
_LOCK: Final = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW


class Quota(msgspec.Struct, frozen=True):
    """Limits of a session's folder: bytes, files and folders, and the age of results of tools; bytes
    of all folders of a person (0: no limit), and what must stay free of the volume."""

    size_bytes: int = 64 * 1024 * 1024
    files: int = 2000
    results_s: float = 7 * 86400.0
    person_bytes: int = 0
    floor: DiskFloor = DiskFloor()


class SessionFolder:
    """The folder `root/name`, made by the first write; `stop` ends the work between two steps. A
    lock file next to it admits one writer at a time across all processes, because the quota is
    measured before each write: two at once could each stay within it and exceed it together."""

    def __init__(
        self,
        root: Path,
        name: str,
        quota: Quota,
        access: openat.Access = openat.OWNER_ONLY,
        *,
        person: str = "",
        people: PersonUsage | None = None,
    ) -> None:
        self.own: SessionFolder = self
        self.granted: Granted = ""
        self._person = person
        self._people = people
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
            return openat.read_file_beneath(top, openat.names_on_disk(top, parts), limit_bytes)

    def write_file(self, stop: StopSignal, parts: Parts, data: bytes, was: bytes | None) -> None:
        """Replace a whole file atomically: readers see the old one or the new one. With `was`,
        write only if the file still holds that, or already holds `data`. Raises OSError, and
        ToolFailed for a file that has changed or a folder that would exceed its quota."""
        self.quota.floor.check(self._root)
        self._root.mkdir(mode=self._access.folder, parents=True, exist_ok=True)
        with self._hold_lock(stop), self._open_folder(make=True) as top:
            parts = openat.names_on_disk(top, parts)
            old, new_files = _stat_old_file(top, parts)
            if was is not None:
                limit_bytes = max(len(was), len(data), old.st_size if old else 0)
                now = None if old is None else openat.read_file_beneath(top, parts, limit_bytes)
                if now == data:  # a repeated attempt whose first write succeeded
                    return
                if now != was:
                    raise ToolFailed(f"{'/'.join(parts)!r} is not as you read it any more; read it again")
            more_bytes = len(data) - (old.st_size if old else 0)
            used_bytes = self._free_quota(stop, top, parts, more_bytes, new_files)
            if self.book(used_bytes) and more_bytes > 0:
                self.book(used_bytes - more_bytes)
                raise ToolFailed(
                    f"{'/'.join(parts)!r} is not written: the workspaces of all chats of this person would have "
                    f"more than {self.quota.person_bytes:,} bytes. Make other files smaller, or write less"
                )
            with openat.open_folder_beneath(top, parts[:-1], make=self._access) as at:
                _replace_file(stop, at, parts[-1], data, self._mode(old), self._access)

    def _mode(self, old: os.stat_result | None) -> int:
        """Return the rights of a file that is written in place of an old one, if there is one."""
        return self._access.file | (stat.S_IMODE(old.st_mode) & self._access.folder if old else 0)

    def book(self, used_bytes: int) -> int:
        """Count the folder with this size; return by how many bytes its person has too much."""
        return self._people.book(self._person, self._name, used_bytes) if self._people else 0

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
        """Remove the folder, if empty, its lock and its booking. Call it with the lock held."""
        try:
            os.rmdir(self.path)
            os.unlink(self._lock)
            if self._people:
                self._people.drop(self._name)
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

    def _free_quota(self, stop: StopSignal, top: int, parts: Parts, used_bytes: int, files: int) -> int:
        """Delete expired results, then the oldest, until the new file fits; return the bytes that
        the folder will have. Raises ToolFailed."""
        results: list[openat.TreeEntry] = []
        now = time.time()
        for found in self._walk_entries(stop, top, _is_too_deep):
            plain = _is_plain(found)
            name = found.parts[-1]
            is_result = plain and found.parts[0] == RESULTS and found.parts != tuple(parts)
            abandoned = plain and name.startswith(_TEMPORARY[0]) and name.endswith(_TEMPORARY[1])
            limit_s = self.quota.results_s if is_result else _ABANDONED_S if abandoned else None
            if limit_s is not None and found.info.st_mtime < now - limit_s:
                with contextlib.suppress(OSError):
                    openat.remove_beneath(top, found)
                    continue
            used_bytes = used_bytes + _size_bytes(found)
            files = files + 1
            if is_result:
                results.append(found)
        for found in sorted(results, key=lambda found: found.info.st_mtime):
            if used_bytes <= self.quota.size_bytes and files <= self.quota.files:
                break
            with contextlib.suppress(OSError):
                openat.remove_beneath(top, found)
                used_bytes = used_bytes - _size_bytes(found)
                files = files - 1
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
        return used_bytes

    def _walk_entries(
        self, stop: StopSignal, top: int, skip: Callable[[tuple[str, ...], str], object]
    ) -> Iterator[openat.TreeEntry]:
        """Yield what is in the folder, up to somewhat more than the quota."""
        return openat.walk_beneath(top, check=stop.check, limit=self.quota.files * 2 + 1000, skip=skip)


class GrantedFolder(SessionFolder):
    """The folder `path` of the operator's, `name` in the settings. What Shoal keeps for the session
    itself (`_PRIVATE`) stays in `own`, as does the lock. It is never created, no quota counts it, and
    nothing in it is deleted."""

    def __init__(self, name: str, path: Path, own: SessionFolder, *, writable: bool) -> None:
        super().__init__(own._root, folder_name(f"folder:{name}"), own.quota)
        self.own = own
        self.granted = "write" if writable else "read"
        self._path = path
        self._called = name

    @property
    def path(self) -> Path:
        return self._path

    def read_file(self, stop: StopSignal, parts: Parts, limit_bytes: int) -> bytes:
        if _is_private(parts):
            return self.own.read_file(stop, parts, limit_bytes)
        return super().read_file(stop, parts, limit_bytes)

    def write_file(self, stop: StopSignal, parts: Parts, data: bytes, was: bytes | None) -> None:
        if _is_private(parts):
            self.own.write_file(stop, parts, data, was)
            return
        if self.granted == "read":
            raise ToolFailed(f"{'/'.join(parts)!r} is not written: the folder {self._called!r} can only be read here")
        with self._open_folder():
            self.quota.floor.check(self._path)
        super().write_file(stop, parts, data, was)

    def list_entries(self, stop: StopSignal) -> list[FileEntry]:
        there = [entry for entry in super().list_entries(stop) if not _is_private(entry.path.split("/"))]
        return there + [entry for entry in self.own.list_entries(stop) if _is_private(entry.path.split("/"))]

    @contextlib.contextmanager
    def _open_folder(self, *, make: bool = False) -> Iterator[int]:
        """Yield the folder's handle. Links are followed on the operator's path to it alone."""
        try:
            top = os.open(self._path, os.O_RDONLY | os.O_DIRECTORY)
        except OSError:
            raise ToolFailed(
                f"the folder {self._called!r} is not there, or not open to this worker. "
                "Tell the user: an operator must look at workspace.folders"
            ) from None
        try:
            info = os.fstat(top)
            self._access = openat.Access(owner=(info.st_uid, info.st_gid))
            yield top
        finally:
            os.close(top)

    def _mode(self, old: os.stat_result | None) -> int:
        """A file keeps its rights, without those to run as its owner or group."""
        return stat.S_IMODE(old.st_mode) & 0o777 if old else 0o644

    def _free_quota(self, stop: StopSignal, top: int, parts: Parts, used_bytes: int, files: int) -> int:
        return used_bytes


def _is_private(parts: Parts) -> bool:
    return bool(parts) and parts[0].casefold() in _PRIVATE


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


def _replace_file(stop: StopSignal, at: int, name: str, data: bytes, mode: int, access: openat.Access) -> None:
    """Write a file and rename it: the rename replaces a link of that name, and never follows it."""
    temporary = f"{_TEMPORARY[0]}{secrets.token_hex(8)}{_TEMPORARY[1]}"
    try:
        with open(os.open(temporary, _CREATE, mode, dir_fd=at), "wb") as file:
            if access.owner:
                access.grant(file.fileno())
            os.fchmod(file.fileno(), mode)  # the umask has cut the mode given to open
            file.write(data)
        stop.check()  # the rename is the step that cannot be undone
        os.replace(temporary, name, src_dir_fd=at, dst_dir_fd=at)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary, dir_fd=at)
        raise
