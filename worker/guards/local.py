"""Detect whether a folder is on a disk of this machine, and not on a network volume, which can
hang."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Final

LOCAL: Final = frozenset({"bcachefs", "btrfs", "ext2", "ext3", "ext4", "f2fs", "overlay", "tmpfs", "xfs", "zfs"})
"""File systems that do not depend on another machine."""

MOUNTS: Final = Path("/proc/self/mountinfo")


def is_local(folder: Path, mounts: Path = MOUNTS) -> bool:
    """Return whether the folder is, or will be once created, on a local disk. False if that is
    unknown, as on systems without such a list of mounts. Blocking."""
    for at in (folder, *folder.parents):
        with contextlib.suppress(OSError):
            return file_system(os.stat(at).st_dev, mounts.read_text()) in LOCAL
        if os.path.lexists(at):
            return False  # it exists, but stat failed: a dead volume
    return False


def file_system(device: int, mounts: str) -> str:
    """Return the type of the file system on a device; `""` if the list of mounts lacks it.

    A line is `36 35 98:0 /root /where options optional… - kind source options` (proc(5)).
    """
    number = f"{os.major(device)}:{os.minor(device)}"
    for line in mounts.splitlines():
        before, _, behind = line.partition(" - ")
        if before.split()[2:3] == [number]:
            return behind.split(" ", 1)[0]
    return ""
