"""Whether a folder is on a disk of this machine, and not on a volume that a network can take
away."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Final

LOCAL: Final = frozenset({"bcachefs", "btrfs", "ext2", "ext3", "ext4", "f2fs", "overlay", "tmpfs", "xfs", "zfs"})
"""File systems that no other machine answers for."""

MOUNTS: Final = Path("/proc/self/mountinfo")


def is_local(folder: Path, mounts: Path = MOUNTS) -> bool:
    """Whether it is, as of now, or will be once it is made. False where that cannot be told, as on
    systems without such a list of mounts. Blocking."""
    for at in (folder, *folder.parents):
        with contextlib.suppress(OSError):
            return file_system(os.stat(at).st_dev, mounts.read_text()) in LOCAL
        if os.path.lexists(at):
            return False  # it is there, and does not answer
    return False


def file_system(device: int, mounts: str) -> str:
    """The kind of file system that is mounted from a device; `""` when the list of mounts does not
    have it.

    A line is `36 35 98:0 /root /where options optional… - kind source options` (proc(5)).
    """
    number = f"{os.major(device)}:{os.minor(device)}"
    for line in mounts.splitlines():
        before, _, behind = line.partition(" - ")
        if before.split()[2:3] == [number]:
            return behind.split(" ", 1)[0]
    return ""
