"""The files of a local copy: looked at, read, and made to be as a manifest says. Everything here
blocks, follows no link, and never leaves the folder."""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final

from worker.copies.manifest import Entry
from worker.guards import openat
from worker.guards.openat import Access, TreeEntry

_READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
_CREATE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
_TEMPORARY: Final = ".shoal-"
_RACY_NS: Final = 50_000_000
"""A file that changed so lately may change again without another time: it is read again."""


def list_files(folder: Path) -> dict[str, os.stat_result]:
    """Return the status of all that a copy may hold, by path; none for a folder that does not exist."""
    try:
        with openat.open_top(folder) as top:
            return {"/".join(found.parts): found.info for found in openat.walk_beneath(top) if _is_kept(found)}
    except FileNotFoundError:
        return {}


def seen(info: os.stat_result) -> tuple[int, ...]:
    """Return what tells whether a file has changed since."""
    lately = info.st_ctime_ns > time.time_ns() - _RACY_NS
    if stat.S_ISDIR(info.st_mode):
        return (stat.S_IMODE(info.st_mode), info.st_ino)
    return (info.st_mode, info.st_size, info.st_mtime_ns, 0 if lately else info.st_ctime_ns, info.st_ino)


def read_entry(folder: Path, path: str, info: os.stat_result) -> tuple[Entry, bytes]:
    """Return the entry of a file, without its blob, and its bytes. Raises OSError."""
    parts = path.split("/")
    if stat.S_ISDIR(info.st_mode):
        return Entry("folder", mode=stat.S_IMODE(info.st_mode)), b""
    with openat.open_top(folder) as top, openat.open_folder_beneath(top, parts[:-1]) as at:
        if stat.S_ISLNK(info.st_mode):
            return Entry("link", os.readlink(parts[-1], dir_fd=at), 0), b""
        with open(os.open(parts[-1], _READ, dir_fd=at), "rb") as file:
            return Entry(mode=stat.S_IMODE(info.st_mode), mtime_ns=info.st_mtime_ns), file.read()


def apply(
    folder: Path, changed: Mapping[str, Entry | None], read: Callable[[str], bytes], access: Access
) -> dict[str, tuple[int, ...]]:
    """Make each path what its entry says, None: remove it; `read` returns the bytes of a blob.
    Return the new status of each file. Each single file is replaced at once. Raises OSError."""
    folder.parent.mkdir(mode=access.folder, parents=True, exist_ok=True)
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=access.folder)
    now: dict[str, tuple[int, ...]] = {}
    with openat.open_top(folder) as top:
        access.grant(top)
        for path in sorted(changed, reverse=True):  # what lies in a folder goes before it
            if _in_the_way(top, path.split("/"), changed[path]):
                _remove(folder, top, path.split("/"))
        for path in sorted(changed):
            if (entry := changed[path]) is None:
                continue
            *inside, name = path.split("/")
            with openat.open_folder_beneath(top, inside, access) as at:
                _make(at, name, entry, read, access)
                now[path] = seen(os.stat(name, dir_fd=at, follow_symlinks=False))
    return now


def _make(at: int, name: str, entry: Entry, read: Callable[[str], bytes], access: Access) -> None:
    if entry.kind == "folder":
        with contextlib.suppress(FileExistsError):
            os.mkdir(name, access.folder, dir_fd=at)
        os.chmod(name, entry.mode | access.folder, dir_fd=at)
        return
    with _renamed_to(at, name) as part:
        if entry.kind == "link":
            os.symlink(entry.blob, part, dir_fd=at)
            return
        with open(os.open(part, _CREATE, access.file, dir_fd=at), "wb") as file:
            file.write(read(entry.blob))
            file.flush()
            os.fchmod(file.fileno(), entry.mode & 0o777)
            os.utime(file.fileno(), ns=(entry.mtime_ns, entry.mtime_ns))


@contextlib.contextmanager
def _renamed_to(at: int, name: str) -> Iterator[str]:
    part = f"{_TEMPORARY}{secrets.token_hex(8)}.part"
    try:
        yield part
        os.rename(part, name, src_dir_fd=at, dst_dir_fd=at)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(part, dir_fd=at)
        raise


def _in_the_way(top: int, parts: list[str], entry: Entry | None) -> bool:
    """Tell whether something is at a path that must go first."""
    with contextlib.suppress(OSError), openat.open_folder_beneath(top, parts[:-1]) as at:
        is_folder = stat.S_ISDIR(os.stat(parts[-1], dir_fd=at, follow_symlinks=False).st_mode)
        return entry is None or is_folder != (entry.kind == "folder")
    return False


def _remove(folder: Path, top: int, parts: list[str]) -> None:
    with contextlib.suppress(FileNotFoundError), openat.open_folder_beneath(top, parts[:-1]) as at:
        if stat.S_ISDIR(os.stat(parts[-1], dir_fd=at, follow_symlinks=False).st_mode):
            openat.remove_tree(folder.joinpath(*parts))
        else:
            os.unlink(parts[-1], dir_fd=at)


def _is_kept(found: TreeEntry) -> bool:
    name = found.parts[-1]
    mode = found.info.st_mode
    if name.startswith(_TEMPORARY) and name.endswith(".part"):
        return False
    return stat.S_ISREG(mode) or stat.S_ISLNK(mode) or stat.S_ISDIR(mode)
