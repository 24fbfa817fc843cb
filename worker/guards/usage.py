"""The quota of a workspace that commands write into freely: measured while they run, enforced
afterwards."""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from worker.guards.folder import Quota
from worker.guards.openat import open_folder_beneath, remove_tree
from worker.guards.threads import StopSignal

DEPTH_LIMIT: Final = 48
"""Folders deeper than this can be neither measured nor opened, and are deleted."""

_FOLDER_MODE: Final = 0o700


class WorkspaceUsage(msgspec.Struct, frozen=True):
    """The size of a workspace; folders count as files. `unmeasurable` is the reason why part of it
    cannot be measured, or `""`."""

    size_bytes: int
    files: int
    unmeasurable: str = ""

    def over(self, quota: Quota) -> str:
        """Return why it is over the quota; `""` if it is not."""
        if self.size_bytes > quota.size_bytes:
            return f"the workspace has {self.size_bytes:,} bytes; at most {quota.size_bytes:,} are allowed"
        if self.files > quota.files:
            return f"the workspace has {self.files:,} files and folders or more; at most {quota.files:,} are allowed"
        return self.unmeasurable


class WorkspaceEntry(msgspec.Struct, frozen=True):
    """A file or folder of a workspace, by the names on the way to it. `changed_ns` is the time of
    its last change by the clock of the disk."""

    parts: tuple[str, ...]
    size_bytes: int
    changed_ns: int
    is_folder: bool


class _Unmeasurable(PermissionError):
    """Part of the workspace cannot be measured."""


def measure_usage(stop: StopSignal, folder: Path, quota: Quota) -> WorkspaceUsage:
    """Measure the folder, and stop early once it is over the quota. Raises OSError."""
    size_bytes = files = 0
    with _open_folder(folder) as top:
        try:
            for found in walk_workspace(stop, top, limit=quota.files + 1):
                size_bytes, files = size_bytes + found.size_bytes, files + 1
        except _Unmeasurable as odd:
            return WorkspaceUsage(size_bytes, files, str(odd))
    return WorkspaceUsage(size_bytes, files)


def disk_time_ns(stop: StopSignal, folder: Path) -> int:
    """Return the current time of the disk in nanoseconds, from a new file: a network volume stamps
    files with its own clock. Raises OSError."""
    stop.check()
    with _open_folder(folder) as top:
        name = f".shoal-{secrets.token_hex(8)}.part"
        fd = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600, dir_fd=top)
        try:
            return os.fstat(fd).st_ctime_ns
        finally:
            os.close(fd)
            os.unlink(name, dir_fd=top)


def restore_quota(stop: StopSignal, folder: Path, quota: Quota, since_ns: int) -> int:
    """Bring the folder back within its quota; call it when nothing runs in it. Closed folders are
    reopened, folders that are too deep are deleted, and then the newest of what changed since
    `since_ns` (by the clock of the disk) is deleted until the quota holds. Return the number of
    deleted files and folders. Raises OSError."""
    with _open_folder(folder) as top:
        gone = reopen_folders(stop, top, folder)
        found = list(walk_workspace(stop, top, limit=None))
        size_bytes, files = sum(one.size_bytes for one in found), len(found)
        # Files first, newest first; then folders, deepest first, when they are empty.
        for one in sorted(
            found, key=lambda one: (one.is_folder, -len(one.parts) if one.is_folder else -one.changed_ns)
        ):
            if size_bytes <= quota.size_bytes and files <= quota.files:
                break
            if one.changed_ns >= since_ns and _remove_entry(top, one):
                size_bytes, files, gone = size_bytes - one.size_bytes, files - 1, gone + 1
        return gone


def reopen_folders(stop: StopSignal, top: int, folder: Path) -> int:
    """Reopen closed folders and delete those that are too deep; return the number of deleted
    ones."""
    gone = 0
    waiting: list[tuple[str, ...]] = [()]
    while waiting:
        stop.check()
        inside = waiting.pop()
        with open_folder_beneath(top, inside) as at:
            for name in os.listdir(at):
                info = os.stat(name, dir_fd=at, follow_symlinks=False)
                if not stat.S_ISDIR(info.st_mode):
                    continue
                if info.st_mode & _FOLDER_MODE != _FOLDER_MODE:
                    os.chmod(name, stat.S_IMODE(info.st_mode) | _FOLDER_MODE, dir_fd=at)
                if len(inside) + 1 < DEPTH_LIMIT:
                    waiting.append((*inside, name))
                    continue
                short = f".deep-{secrets.token_hex(8)}"
                os.rename(name, short, src_dir_fd=at, dst_dir_fd=top)
                remove_tree(folder / short)
                gone += 1
    return gone


def walk_workspace(stop: StopSignal, top: int, limit: int | None) -> Iterator[WorkspaceEntry]:
    """Yield everything below, at most `limit` entries. Raises _Unmeasurable."""
    waiting: list[tuple[str, ...]] = [()]
    seen = 0
    while waiting:
        stop.check()
        inside = waiting.pop()
        if len(inside) >= DEPTH_LIMIT:
            raise _Unmeasurable(f"folders lie {DEPTH_LIMIT} deep and more, which cannot be measured")
        try:
            with open_folder_beneath(top, inside) as at, os.scandir(at) as listed:
                for entry in listed:
                    with contextlib.suppress(FileNotFoundError):
                        yield (found := _stat_entry(inside, entry))
                        seen += 1
                        if found.is_folder:
                            waiting.append(found.parts)
                    if limit is not None and seen >= limit:
                        return
        except PermissionError:
            if _owned_by_another(top, inside):
                continue  # created by the runner's user, whose runner measures what it has closed
            raise _Unmeasurable("a folder was closed to its owner, and cannot be measured") from None
        except OSError:
            if not inside:
                raise
            continue  # removed meanwhile, or swapped for something else


def _owned_by_another(top: int, parts: tuple[str, ...]) -> bool:
    """Return whether a folder belongs to another user."""
    with contextlib.suppress(OSError, IndexError), open_folder_beneath(top, parts[:-1]) as at:
        return os.stat(parts[-1], dir_fd=at, follow_symlinks=False).st_uid != os.geteuid()
    return False


def _stat_entry(inside: tuple[str, ...], entry: os.DirEntry[str]) -> WorkspaceEntry:
    info = entry.stat(follow_symlinks=False)
    is_folder = stat.S_ISDIR(info.st_mode)
    size_bytes = 0 if is_folder else max(info.st_size, info.st_blocks * 512) if info.st_nlink else 0
    return WorkspaceEntry((*inside, entry.name), size_bytes, info.st_ctime_ns, is_folder)


def _remove_entry(top: int, found: WorkspaceEntry) -> bool:
    try:
        with open_folder_beneath(top, found.parts[:-1]) as at:
            (os.rmdir if found.is_folder else os.unlink)(found.parts[-1], dir_fd=at)
    except OSError:
        return False
    return True


@contextlib.contextmanager
def _open_folder(folder: Path) -> Iterator[int]:
    top = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        yield top
    finally:
        os.close(top)
