"""Keeps what this process knows from others of the same user: an MCP server, a command, a
parser."""

from __future__ import annotations

import contextlib
import os
import sys

_ENVIRONMENT_START, _ENVIRONMENT_END = 47, 48  # among the fields of proc(5) `stat` after the name


def hide_process() -> None:
    """Close this process's memory and its files in /proc to others of this user, and empty the copy
    of its environment there. Our own `os.environ`, and what children inherit, stay as they are."""
    if sys.platform != "linux":
        return
    from shared.confinement.processes import DUMPABLE, prctl

    # Refused by an unusual kernel alone; the environment is emptied all the same.
    with contextlib.suppress(OSError):
        prctl(DUMPABLE, 0)
    _empty_environment()


def _empty_environment() -> None:
    """Overwrite the strings that the kernel gave us: root reads them whatever the process is."""
    import ctypes

    # setenv copies each to the heap first: libc and children with our environment use those.
    for name, value in os.environb.items():
        os.environb[name] = value
    with open("/proc/self/stat", "rb") as file:
        start, end = _environment_range(file.read())
    if 0 < start < end:
        ctypes.memset(start, 0, end - start)


def _environment_range(stat: bytes) -> tuple[int, int]:
    """Return where the strings begin and end; (0, 0) if that is not told, as by qemu, which writes
    fewer fields."""
    fields = stat.rpartition(b")")[2].split()
    if len(fields) <= _ENVIRONMENT_END:
        return 0, 0
    return int(fields[_ENVIRONMENT_START]), int(fields[_ENVIRONMENT_END])
