"""What a process may tell the kernel about itself: prctl(2), by ctypes."""

from __future__ import annotations

import ctypes
import os
from typing import Final

DEATH_SIGNAL: Final = 1  # the signal for this process when its parent ends
DUMPABLE: Final = 4  # 0: others of the same user can neither trace it nor read its /proc files
SECCOMP: Final = 22
SUBREAPER: Final = 36  # orphans below this process become its children
NO_NEW_PRIVILEGES: Final = 38
AMBIENT, AMBIENT_CLEAR_ALL = 47, 4

_libc: Final = ctypes.CDLL(None, use_errno=True)


def prctl(option: int, *values: int) -> None:
    """Raises OSError."""
    padded = [*values, 0, 0, 0, 0][:4]
    if _libc.prctl(option, *map(ctypes.c_ulong, padded)) != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"prctl {option} is refused: {os.strerror(code)}")
