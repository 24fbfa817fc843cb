"""Open files beneath a folder one name at a time, so that no link leads out of it, even one that is
swapped in while we walk.

Each name is opened relative to the handle of the folder before it, with O_NOFOLLOW. A path that is
checked first and opened afterwards could be replaced by a link in between; a handle cannot. What
was opened is checked (fstat) before it is used. This does what openat2(RESOLVE_BENEATH) does, on
Linux and macOS alike. Everything here blocks on a slow volume, but never on a FIFO or a device."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from shared.errors import ToolFailed

_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
_FILE: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK  # non-blocking: a FIFO must not hang us
_FOLDER_MODE: Final = 0o700

DEPTH_LIMIT: Final = 48  # folders deeper than this can be neither measured nor opened


class OddFile(OSError):
    """The path names something other than a plain file or folder of this workspace alone. `what`
    describes it; `outside` means that it could lead out of the workspace."""

    def __init__(self, what: str, *, outside: bool = False) -> None:
        super().__init__(what)
        self.what = what
        self.outside = outside


class Access(msgspec.Struct, frozen=True):
    """Rights of new folders and files: for their user alone, or also for the group of a number; in a
    folder of the operator's for all to read, and what root makes belongs to its `owner`."""

    group: int | None = None
    owner: tuple[int, int] | None = None

    @property
    def folder(self) -> int:
        if self.owner:
            return 0o755
        return 0o700 if self.group is None else 0o770

    @property
    def file(self) -> int:
        return 0o600 if self.group is None else 0o660

    def grant(self, folder: int) -> None:
        """Give the group access to a folder (a handle) of ours; what is created in it belongs to
        the group too (setgid). Raises OSError for a group that this process is not in."""
        if self.owner:
            os.fchown(folder, *(self.owner if os.geteuid() == 0 else (-1, -1)))
            return
        info = os.fstat(folder)
        mode = stat.S_ISGID | self.folder
        if self.group is None or info.st_uid != os.geteuid():
            return
        if info.st_gid != self.group:
            os.fchown(folder, -1, self.group)  # before the mode: a change of group may clear setgid
        if info.st_gid != self.group or stat.S_IMODE(info.st_mode) & mode != mode:
            os.fchmod(folder, mode)


OWNER_ONLY: Final = Access()


class NoSuchFile(ToolFailed):
    """No file has that name."""


class TreeEntry(NamedTuple):
    """Something below a folder: the names on the way to it, and its status."""

    parts: tuple[str, ...]
    info: os.stat_result

    @property
    def is_folder(self) -> bool:
        return stat.S_ISDIR(self.info.st_mode)

    @property
    def disk_bytes(self) -> int:
        """The disk space that goes with this name; 0 for a folder."""
        if self.is_folder or not self.info.st_nlink:
            return 0
        return max(self.info.st_size, self.info.st_blocks * 512)


@contextlib.contextmanager
def open_folder_beneath(top: int, parts: Sequence[str], make: Access | None = None) -> Iterator[int]:
    """Open a folder beneath the handle `top`, creating it with the access `make`; yield its handle.
    Raises OSError; OddFile for a link or a file on the way."""
    at = os.dup(top)
    try:
        for part in parts:
            inner = _open_step(at, part, make)
            os.close(at)
            at = inner
        yield at
    finally:
        os.close(at)


@contextlib.contextmanager
def open_top(folder: Path | str) -> Iterator[int]:
    """Open a folder that is no link, and yield its handle. Raises OSError."""
    top = os.open(folder, _FOLDER)
    try:
        yield top
    finally:
        os.close(top)


def walk_beneath(
    top: int,
    *,
    check: Callable[[], None] = lambda: None,
    limit: int | None = None,
    skip: Callable[[tuple[str, ...], str], object] = lambda inside, name: False,
    closed: Callable[[tuple[str, ...]], None] = lambda inside: None,
) -> Iterator[TreeEntry]:
    """Yield everything below the handle `top`, looking at no more than `limit` entries. `check` is
    called before each folder; `skip` gets a folder and a name in it, which is then left out;
    `closed` gets a folder that may not be opened. Raises what they raise, and OSError if `top`
    itself cannot be read."""
    waiting: list[tuple[str, ...]] = [()]
    seen = 0
    while waiting:
        check()
        inside = waiting.pop()
        try:
            with open_folder_beneath(top, inside) as at, os.scandir(at) as listed:
                for entry in listed:
                    if limit is not None and (seen := seen + 1) > limit:
                        return
                    if skip(inside, entry.name):
                        continue
                    with contextlib.suppress(FileNotFoundError):
                        parts = (*inside, entry.name)
                        yield (found := TreeEntry(parts, entry.stat(follow_symlinks=False)))
                        if found.is_folder:
                            waiting.append(parts)
        except OSError as exc:
            if isinstance(exc, PermissionError):
                closed(inside)
            if not inside:
                raise
            # Otherwise removed meanwhile, or swapped for something else.


def names_on_disk(top: int, parts: Sequence[str]) -> tuple[str, ...]:
    """Return a path beneath the handle `top` with its names as they are on disk: a letter and its
    accent may be one character (NFC) or two (NFD, as macOS writes them), and both are one name to
    people. An exact name wins; a new one is NFC. Raises OSError."""
    found: list[str] = []
    for part in parts:
        name = unicodedata.normalize("NFC", part)
        if not part.isascii():
            with contextlib.suppress(FileNotFoundError), open_folder_beneath(top, found) as at:
                same = [one for one in os.listdir(at) if unicodedata.normalize("NFC", one) == name]
                name = part if part in same else min(same, default=name)
        found.append(name)
    return tuple(found)


def read_file_beneath(top: int, parts: Sequence[str], limit_bytes: int) -> bytes:
    """Return the bytes of a plain file. Raises OSError; OddFile for anything else,
    including a file with a second hard link; ToolFailed over `limit_bytes`."""
    with open_folder_beneath(top, parts[:-1]) as at:
        # Checked twice: before opening, because opening a device can have effects; and again on the
        # handle, because the name may have been replaced in between.
        check_plain_file(os.stat(parts[-1], dir_fd=at, follow_symlinks=False))
        with open(os.open(parts[-1], _FILE, dir_fd=at), "rb") as file:
            info = os.fstat(file.fileno())
            check_plain_file(info)
            data = b"" if info.st_size > limit_bytes else file.read(limit_bytes + 1)
            size_bytes = max(info.st_size, len(data))
    if size_bytes > limit_bytes:
        raise ToolFailed(
            f"{'/'.join(parts)!r} has {size_bytes:,} bytes; only files of up to {limit_bytes:,} bytes can be read"
        )
    return data


def remove_beneath(top: int, found: TreeEntry) -> None:
    """Remove a file or an empty folder. Raises OSError."""
    with open_folder_beneath(top, found.parts[:-1]) as at:
        (os.rmdir if found.is_folder else os.unlink)(found.parts[-1], dir_fd=at)


def remove_tree(folder: Path) -> None:
    """Remove a folder, however deep, in which nothing runs; follow no link. Raises OSError."""
    while entries := list(os.scandir(folder)):
        for entry in entries:
            if not entry.is_dir(follow_symlinks=False):
                os.unlink(entry.path)
                continue
            os.chmod(entry.path, _FOLDER_MODE)
            # What is inside moves up under a short name, so that no path ever gets too long to use,
            # and no recursion too deep.
            for inner in list(os.scandir(entry.path)):
                if inner.is_dir(follow_symlinks=False):  # cannot be moved if it is not writable
                    os.chmod(inner.path, _FOLDER_MODE)
                os.rename(inner.path, folder / secrets.token_hex(8))
            os.rmdir(entry.path)
    os.rmdir(folder)


def check_plain_file(info: os.stat_result) -> None:
    """Raise OddFile unless this is a regular file with one name: a second may lie outside."""
    if stat.S_ISDIR(info.st_mode):
        raise IsADirectoryError(errno.EISDIR, "a folder")
    if stat.S_ISLNK(info.st_mode):
        raise OddFile("a link", outside=True)
    if not stat.S_ISREG(info.st_mode):
        raise OddFile("not a plain file")
    if info.st_nlink > 1:
        raise OddFile("a file with a second name elsewhere (a hard link)", outside=True)


def explain_error(path: str, error: OSError) -> ToolFailed:
    """Return the error text for the model; it names nothing of the machine."""
    if isinstance(error, OddFile):
        leads = "which can lead outside the workspace, " if error.outside else ""
        return ToolFailed(f"{path!r} is, or lies behind, {error.what}, {leads}and is not touched. Use another path")
    match error.errno:
        case errno.ENOENT:
            return NoSuchFile(f"there is no file {path!r}")
        case errno.ENAMETOOLONG:
            return ToolFailed(f"the path {path[:40]!r}… is too long for the workspace; use a shorter one")
        case errno.EISDIR:
            why = " is a folder; list_dir shows what is in it"
        case errno.ENOTDIR:
            why = " leads through a file as if it were a folder; list_dir shows what there is"
        case errno.ELOOP | errno.EMLINK:
            why = " is, or lies behind, a link, which can lead outside the workspace"
        case errno.ENOSPC | errno.EDQUOT:
            why = " is not written: the disk of the workspaces is full. Tell the user"
        case errno.EACCES | errno.EPERM | errno.EROFS:
            why = " may not be opened or changed; use another path"
        case errno.ENXIO | errno.ENODEV:
            why = " is not a plain file, and is not touched. Use another path"
        case _:
            why = ": the workspace cannot be reached just now. Try again later, or go on without it"
    return ToolFailed(f"{path!r}{why}")


def _open_step(at: int, part: str, make: Access | None) -> int:
    try:
        return os.open(part, _FOLDER, dir_fd=at)
    except FileNotFoundError:
        if make is None:
            raise
    except OSError as exc:
        if exc.errno in (errno.ENOTDIR, errno.ELOOP, errno.EMLINK) and _is_link(at, part):
            raise OddFile("a link", outside=True) from None
        raise
    with contextlib.suppress(FileExistsError):  # another worker may have created it meanwhile
        os.mkdir(part, make.folder, dir_fd=at)
    made = _open_step(at, part, make=None)
    try:
        make.grant(made)
    except OSError:
        os.close(made)
        raise
    return made


def _is_link(at: int, part: str) -> bool:
    with contextlib.suppress(OSError):
        return stat.S_ISLNK(os.stat(part, dir_fd=at, follow_symlinks=False).st_mode)
    return False
