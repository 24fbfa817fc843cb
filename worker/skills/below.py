"""Reading below a folder, so that no path, link or special file leads out of it or blocks."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Final

from shared.encodings.decode import decode_file

FILE_LIMIT_BYTES: Final = 64 * 1024
_FILES: Final = 100
_ENTRIES: Final = 1000
_DEPTH: Final = 4
_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY


def read_below(folder: Path, path: str, *, links: bool, limit_bytes: int = FILE_LIMIT_BYTES) -> str:
    """Return the text of a file as `read_bytes_below` does, in any encoding that can be recognised.
    Raises also UnicodeDecodeError, a ValueError, for a file that is not text."""
    data = read_bytes_below(folder, path, links=links, limit_bytes=limit_bytes)
    found = decode_file(data)
    text = data.decode("utf-8") if found is None else found.text
    return text.replace("\r\n", "\n")


def read_bytes_below(folder: Path, path: str, *, links: bool, limit_bytes: int = FILE_LIMIT_BYTES) -> bytes:
    """Return the content of the file `path` (relative, with `/`) below `folder`. Blocking, though
    not for a FIFO or a device.

    With `links`, symbolic links are followed as long as they end inside the folder, as in a mounted
    ConfigMap. Without, for folders that others write, every link on the way is refused, also one
    that is swapped in at this moment. Raises OSError for a file that does not exist, is a link or
    is not a regular file, and ValueError for a path that leads out, and for one that is too big.
    """
    parts: tuple[str, ...] = tuple(path.split("/"))
    if any(part in ("", ".", "..") or "\0" in part for part in parts):
        raise ValueError("the path leads out of its folder")
    if links:
        top = os.path.realpath(folder, strict=True)
        try:
            target = os.path.realpath(os.path.join(top, *parts), strict=True)
            parts = Path(target).relative_to(top).parts
        except ValueError:
            raise ValueError("the path leads out of its folder") from None
        if not parts:
            raise IsADirectoryError(f"{path!r} is a folder")
    # Even a path that was resolved above is opened without following links, and checked after
    # opening, because a link may be swapped in between.
    at = _open_folder(folder, parts[:-1])
    try:
        opened = os.open(parts[-1], os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=at)
    finally:
        os.close(at)
    with open(opened, "rb") as file:
        info = os.fstat(file.fileno())
        if not stat.S_ISREG(info.st_mode) or (not links and info.st_nlink > 1):
            raise PermissionError(f"{path!r} is not a plain file")
        data = file.read(limit_bytes + 1)
    if len(data) > limit_bytes:
        raise ValueError(f"it has more than {limit_bytes:,} bytes")
    return data


def names_below(folder: Path, inside: str = "", *, links: bool) -> list[str]:
    """Return the paths of the regular files below `inside`, a path below `folder` (`""`, or one
    that ends in `/`), relative to it and sorted. No hidden files; at most 100, four folders deep.
    Blocking. A file may be unreadable; `links` as for `read_below`."""
    found: list[str] = []
    waiting = [""]
    left = _ENTRIES
    while waiting and left > 0 and len(found) < _FILES:
        deeper = waiting.pop()
        try:
            inner = entries_below(folder, f"{inside}{deeper}", links=links, limit=left)
            for name, is_folder in inner:
                left -= 1
                path = f"{deeper}{name}"
                if not is_folder:
                    found.append(path)
                elif path.count("/") < _DEPTH:
                    waiting.append(f"{path}/")
        except OSError:
            continue  # gone, or not for us
    return sorted(found)[:_FILES]


def entries_below(folder: Path, inside: str = "", *, links: bool, limit: int = _ENTRIES) -> Iterator[tuple[str, bool]]:
    """Yield names of the files and folders in a folder, and whether each is a folder; hidden and
    special ones are left out. Looks at `limit` entries at most. Blocking; raises OSError."""
    parts = tuple(part for part in inside.split("/") if part)
    at = os.open(folder / inside, _FOLDER) if links else _open_folder(folder, parts)
    try:
        with os.scandir(at) as entries:
            for entry in islice(entries, limit):
                if entry.name.startswith("."):
                    continue
                try:
                    is_folder = entry.is_dir(follow_symlinks=links)
                    if is_folder or entry.is_file(follow_symlinks=links):
                        yield entry.name, is_folder
                except OSError:
                    continue  # a link to itself
    finally:
        os.close(at)


def _open_folder(folder: Path, parts: tuple[str, ...]) -> int:
    """Return a descriptor of a folder, reached from folder to folder without following any link."""
    at = os.open(folder, _FOLDER)
    for part in parts:
        try:
            inner = os.open(part, _FOLDER | os.O_NOFOLLOW, dir_fd=at)
        finally:
            os.close(at)
        at = inner
    return at
