"""What the processes below one use, read from outside, so that nothing they do can hide it."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator
from typing import NamedTuple

from worker.sandbox.runner.descendants import descendants

_KB = 1024


class ProcessUsage(NamedTuple):
    """`threads` of all processes; `memory_bytes` that is theirs alone, memory that they share, once
    for each, and what is in files that they have open and that have no name any more: nobody else
    can find or measure those."""

    threads: int
    memory_bytes: int


def usage_below(pid: int) -> ProcessUsage:
    """All below `pid`, without it. Programs and libraries do not count: they are the machine's."""
    threads = memory_kb = 0
    unlinked: dict[tuple[int, int], int] = {}
    for one in descendants(pid):
        with contextlib.suppress(OSError, ValueError, IndexError):
            with open(f"/proc/{one}/status", "rb") as file:
                fields = dict(line.split(b":", 1) for line in file.read().splitlines() if b":" in line)
            threads += int(fields[b"Threads"])
            for name in (b"RssAnon", b"RssShmem"):
                memory_kb += int(fields.get(name, b"0").split()[0])
            unlinked |= _unlinked_files(one)
    return ProcessUsage(threads, memory_kb * _KB + sum(unlinked.values()))


def _unlinked_files(pid: int) -> dict[tuple[int, int], int]:
    """The size of each regular file without a name that a process has open, by device and inode."""
    found: dict[tuple[int, int], int] = {}
    for handle in _fd_paths(pid):
        with contextlib.suppress(OSError):
            info = os.stat(handle)
            if stat.S_ISREG(info.st_mode) and info.st_nlink == 0:
                found[info.st_dev, info.st_ino] = info.st_blocks * 512
    return found


def _fd_paths(pid: int) -> Iterator[str]:
    with contextlib.suppress(OSError):  # it has ended
        folder = f"/proc/{pid}/fd"
        for name in os.listdir(folder):
            yield f"{folder}/{name}"
