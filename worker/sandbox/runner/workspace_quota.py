"""The workspace as the user of the commands sees it: measured while a command runs, and reopened
for the worker when it has ended. The worker is another user: it can neither enter nor repair what a
command has closed to its group (`chmod 700`). The supervisor is the command's user, and can."""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
from pathlib import Path
from typing import Final

from worker.guards.openat import DEPTH_LIMIT, open_folder_beneath, remove_tree, walk_beneath

_FOLDER_BITS: Final = 0o770
_FILE_BITS: Final = 0o660
_OWN: Final = 0o700


def is_over_quota(folder: int, quota_bytes: int, quota_files: int) -> bool:
    """Return whether a folder exceeds a quota (0: unlimited), or hides its files."""
    if not quota_bytes and not quota_files:
        return False
    size_bytes = files = 0
    hidden: list[tuple[str, ...]] = []  # folders that are closed to us
    with contextlib.suppress(OSError):
        for found in walk_beneath(folder, closed=hidden.append):
            size_bytes = size_bytes + found.disk_bytes
            files = files + 1
            if (quota_bytes and size_bytes > quota_bytes) or (quota_files and files > quota_files):
                return True
            if hidden or len(found.parts) > DEPTH_LIMIT:
                return True
    return bool(hidden)


def reopen_workspace(workspace: int) -> None:
    """Give the group its rights on the workspace on everything of ours inside too, for the worker;
    remove what lies too deep; follow no link. Call it when nothing of the command runs any more."""
    top = os.fstat(workspace)
    bits = stat.S_IMODE(top.st_mode) & _FOLDER_BITS | _OWN
    waiting: list[tuple[str, ...]] = [()]
    while waiting:
        inside = waiting.pop()
        # A folder may be swapped or removed meanwhile, by a subagent's command: it is then skipped.
        with contextlib.suppress(OSError), open_folder_beneath(workspace, inside) as at:
            for name in os.listdir(at):
                if not _reopen_entry(at, name, bits, top.st_gid):
                    continue
                if len(inside) + 1 < DEPTH_LIMIT:
                    waiting.append((*inside, name))
                    continue
                short = f".deep-{secrets.token_hex(8)}"
                os.rename(name, short, src_dir_fd=at, dst_dir_fd=workspace)
                remove_tree(Path(f"/proc/self/fd/{workspace}/{short}"))


def _reopen_entry(at: int, name: str, bits: int, group: int) -> bool:
    """Reopen one entry; return whether it is a folder. It works on an O_PATH handle: a subagent's
    command could replace the name by a link between the check and the chmod."""
    try:
        handle = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=at)
    except OSError:
        return False
    try:
        info = os.fstat(handle)
        is_folder = stat.S_ISDIR(info.st_mode)
        if info.st_uid != os.geteuid() or not (is_folder or stat.S_ISREG(info.st_mode)):
            return is_folder
        # fchmod and fchown refuse an O_PATH handle; its /proc path reaches the same inode.
        path = f"/proc/self/fd/{handle}"
        with contextlib.suppress(OSError):
            if info.st_gid != group:
                os.chown(path, -1, group)
            wanted = stat.S_IMODE(info.st_mode) | (bits | stat.S_ISGID if is_folder else bits & _FILE_BITS)
            if info.st_gid != group or wanted != stat.S_IMODE(info.st_mode):
                os.chmod(path, wanted)
        return is_folder
    finally:
        os.close(handle)
