"""The quota of a workspace that commands write into freely, measured while they run and enforced
afterwards; and the end of the files of a forgotten session. Everything here blocks."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from worker.guards import openat
from worker.guards.folder import Quota, SessionFolder
from worker.guards.threads import StopSignal

_FOLDER_MODE: Final = 0o700
_NS: Final = 1_000_000_000


class WorkspaceUsage(msgspec.Struct, frozen=True):
    """The size of a workspace; folders are files. `unmeasurable` says why a part is unknown. It
    should have `excess_bytes` less: of the limit of its person, or of what must stay free."""

    size_bytes: int
    files: int
    unmeasurable: str = ""
    excess_bytes: int = 0

    def within(self, quota: Quota, least_bytes: int = 0) -> Quota:
        """Return the quota, lowered so that the excess is over it, but not below `least_bytes`."""
        most = min(quota.size_bytes, self.size_bytes - self.excess_bytes) if self.excess_bytes else quota.size_bytes
        return msgspec.structs.replace(quota, size_bytes=max(most, least_bytes))

    def over(self, quota: Quota) -> str:
        """Return why it is over the quota; `""` if it is not."""
        if self.excess_bytes and self.size_bytes > quota.size_bytes:
            return "the workspaces of this person are over their limit together, or the disk is almost full"
        for has, limit, what in (
            (self.size_bytes, quota.size_bytes, "bytes"),
            (self.files, quota.files, "files and folders or more"),
        ):
            if has > limit:
                return f"the workspace has {has:,} {what}; at most {limit:,} are allowed"
        return self.unmeasurable


class _Unmeasurable(PermissionError):
    """Part of the workspace cannot be measured."""


def measure_usage(stop: StopSignal, folder: Path, quota: Quota) -> WorkspaceUsage:
    """Measure the folder, and stop early once it is over the quota. Raises OSError."""
    size_bytes = files = 0
    with openat.open_top(folder) as top:
        try:
            for found in _walk_workspace(stop, top):
                size_bytes = size_bytes + found.disk_bytes
                files = files + 1
                if files > quota.files:
                    break
        except _Unmeasurable as odd:
            return WorkspaceUsage(size_bytes, files, str(odd))
    return WorkspaceUsage(size_bytes, files)


def disk_time_ns(stop: StopSignal, folder: Path) -> int:
    """Return the time of the disk (ns), from a new file: a network volume has its own clock."""
    stop.check()
    with openat.open_top(folder) as top:
        name = f".shoal-{secrets.token_hex(8)}.part"
        fd = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600, dir_fd=top)
        try:
            return os.fstat(fd).st_ctime_ns
        finally:
            os.close(fd)
            os.unlink(name, dir_fd=top)


def restore_quota(stop: StopSignal, folder: Path, quota: Quota, since_ns: int) -> int:
    """Bring the folder, in which nothing runs, within its quota: reopen closed folders, delete too
    deep ones, then the newest of what changed since `since_ns` (by the clock of the disk). Return
    the number of deleted files and folders. Raises OSError."""
    with openat.open_top(folder) as top:
        gone = _reopen_folders(stop, top, folder)
        entries = list(_walk_workspace(stop, top))
        size_bytes = sum(found.disk_bytes for found in entries)
        files = len(entries)
        # Files first, newest first; then folders, deepest first, when they are empty.
        for found in sorted(
            entries, key=lambda one: (one.is_folder, -len(one.parts) if one.is_folder else -one.info.st_ctime_ns)
        ):
            if size_bytes <= quota.size_bytes and files <= quota.files:
                break
            if found.info.st_ctime_ns >= since_ns:
                with contextlib.suppress(OSError):
                    openat.remove_beneath(top, found)
                    size_bytes = size_bytes - found.disk_bytes
                    files = files - 1
                    gone = gone + 1
        return gone


def erase_folder(stop: StopSignal, folder: SessionFolder, before_s: float) -> int:
    """Delete what has not changed since `before_s` (seconds since 1970, by the clock of the disk);
    return the number of deleted files and folders. Follows no link, and can be repeated after an
    interruption. Raises OSError if the volume is unavailable or something cannot be deleted."""
    try:
        with folder.open_locked(stop) as top:
            untouched = os.fstat(top).st_ctime_ns < before_s * _NS
            gone = _delete_unchanged(stop, top, folder, before_s)
            if untouched:
                folder.remove_empty()
            return gone
    except FileNotFoundError:
        return 0


def _delete_unchanged(stop: StopSignal, top: int, folder: SessionFolder, before_s: float) -> int:
    gone = _reopen_folders(stop, top, folder.path)
    emptied: set[tuple[str, ...]] = set()
    left = 0
    # A folder comes after everything in it: files first, then folders from the deepest up.
    for found in sorted(_walk_workspace(stop, top), key=lambda one: (one.is_folder, -len(one.parts))):
        stop.check()
        # Deleting a file changes its folder, so a folder that we have emptied ourselves looks new.
        if found.info.st_ctime_ns >= before_s * _NS and found.parts not in emptied:
            continue
        try:
            openat.remove_beneath(top, found)
        except FileNotFoundError:
            continue
        except OSError as exc:
            left += not (found.is_folder and exc.errno in (errno.ENOTEMPTY, errno.EEXIST))
            continue
        gone += 1
        emptied.add(found.parts[:-1])
    if left:
        why = f"{left} files and folders of a workspace could not be deleted"
        raise PermissionError(errno.EACCES, why)
    return gone


def _reopen_folders(stop: StopSignal, top: int, folder: Path) -> int:
    """Reopen closed folders and delete too deep ones; return the number of deleted ones."""
    gone = 0
    waiting: list[tuple[str, ...]] = [()]
    while waiting:
        stop.check()
        inside = waiting.pop()
        with openat.open_folder_beneath(top, inside) as at:
            for name in os.listdir(at):
                info = os.stat(name, dir_fd=at, follow_symlinks=False)
                if not stat.S_ISDIR(info.st_mode):
                    continue
                if info.st_mode & _FOLDER_MODE != _FOLDER_MODE:
                    os.chmod(name, stat.S_IMODE(info.st_mode) | _FOLDER_MODE, dir_fd=at)
                if len(inside) + 1 < openat.DEPTH_LIMIT:
                    waiting.append((*inside, name))
                    continue
                short = f".deep-{secrets.token_hex(8)}"
                os.rename(name, short, src_dir_fd=at, dst_dir_fd=top)
                openat.remove_tree(folder / short)
                gone += 1
    return gone


def _walk_workspace(stop: StopSignal, top: int) -> Iterator[openat.TreeEntry]:

    def closed(inside: tuple[str, ...]) -> None:
        """Skip what the runner's user created: its runner measures what it has closed."""
        with contextlib.suppress(OSError, IndexError), openat.open_folder_beneath(top, inside[:-1]) as at:
            info = os.stat(inside[-1], dir_fd=at, follow_symlinks=False)
            if info.st_uid != os.geteuid():
                return
        raise _Unmeasurable("a folder was closed to its owner, and cannot be measured")

    for found in openat.walk_beneath(top, check=stop.check, closed=closed):
        yield found
        if found.is_folder and len(found.parts) >= openat.DEPTH_LIMIT:
            raise _Unmeasurable(f"folders lie {openat.DEPTH_LIMIT} deep and more, which cannot be measured")
