"""prctl(2), through ctypes: settings of the calling process."""

from __future__ import annotations

import ctypes
import os
from typing import Final

DEATH_SIGNAL: Final = 1  # sent to this process when the thread that started it ends
DUMPABLE: Final = 4  # 0: others of the same user can neither trace it nor read its /proc files
SECCOMP: Final = 22
SUBREAPER: Final = 36  # orphans below this process become its children
NO_NEW_PRIVILEGES: Final = 38
AMBIENT, AMBIENT_CLEAR_ALL = 47, 4

_libc: Final = ctypes.CDLL(None, use_errno=True)


def prctl(option: int, *values: int) -> None:
    """Call prctl. Raises OSError."""
    padded = [*values, 0, 0, 0, 0][:4]
    if _libc.prctl(option, *map(ctypes.c_ulong, padded)) != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"prctl {option} is refused: {os.strerror(code)}")
