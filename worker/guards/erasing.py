"""Delete the files of a session when the session is forgotten. Everything here blocks."""

from __future__ import annotations

import errno
import os
from typing import Final

from worker.guards.folder import SessionFolder
from worker.guards.openat import open_folder_beneath
from worker.guards.threads import StopSignal
from worker.guards.usage import reopen_folders, walk_workspace

_NS: Final = 1_000_000_000


def erase_folder(stop: StopSignal, folder: SessionFolder, before_s: float) -> int:
    """Delete what has not changed since `before_s` (seconds since 1970, by the clock of the disk);
    return the number of deleted files and folders. Follows no link, and can be repeated after an
    interruption. Raises OSError if the volume is unavailable or something cannot be deleted.
    """
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
    gone = reopen_folders(stop, top, folder.path)
    emptied: set[tuple[str, ...]] = set()
    left = 0
    # A folder comes after everything in it: files first, then folders from the deepest up.
    for one in sorted(walk_workspace(stop, top, limit=None), key=lambda one: (one.is_folder, -len(one.parts))):
        stop.check()
        # Deleting a file changes its folder, so a folder that we have emptied ourselves looks new.
        if one.changed_ns >= before_s * _NS and one.parts not in emptied:
            continue
        try:
            with open_folder_beneath(top, one.parts[:-1]) as at:
                (os.rmdir if one.is_folder else os.unlink)(one.parts[-1], dir_fd=at)
        except FileNotFoundError:
            continue
        except OSError as exc:
            if not (one.is_folder and exc.errno in (errno.ENOTEMPTY, errno.EEXIST)):
                left += 1
            continue
        gone += 1
        emptied.add(one.parts[:-1])
    if left:
        raise PermissionError(errno.EACCES, f"{left} files and folders of a workspace could not be deleted")
    return gone
