"""Threads and memory of all processes below one, read from /proc, where nothing they do can hide it.

Memory is what the machine gives for them: their own pages, and what the kernel keeps because of
them. Sockets and pipes count with all that they can hold, for their fill cannot be seen from
outside; the system call filter keeps commands from enlarging their buffers."""

from __future__ import annotations

import contextlib
import os
import stat
from typing import Final, NamedTuple

from shared.confinement.processes import descendants
from worker.sandbox.layout import OPEN_FILES, SHM, TMP

_KB: Final = 1024
# A socket accepts a last message of half its send buffer (208 kB) while that is nearly full.
SOCKET_BYTES: Final = 320 * _KB
PIPE_BYTES: Final = 64 * _KB
INODE_BYTES: Final = 3 * _KB // 2  # of a tmpfs: the inode, and its entry with a long name
# Private and shared pages, and the page tables that even memory that was only read needs.
_MEMORY_FIELDS: Final = (b"RssAnon", b"RssShmem", b"VmPTE")
# Bytes that one processor can make the kernel give away in a second, and the bounds of a pause.
_FILL_RATE: Final = 2 * 1024**3
_SHORTEST_S = 0.005
_LONGEST_S = 0.1


class ProcessUsage(NamedTuple):
    """Usage of many processes. Mapped programs and libraries belong to the machine and do not
    count; shared memory counts once for each process."""

    threads: int
    memory_bytes: int


def pause_s(used_bytes: int, limit_bytes: int) -> float:
    """Return the time until the next measurement: what is left cannot be used up much earlier."""
    left_s = (limit_bytes - used_bytes) / (_FILL_RATE * (os.cpu_count() or 1))
    return min(max(left_s, _SHORTEST_S), _LONGEST_S)


def usage_below(pid: int) -> ProcessUsage:
    """Measure all processes below `pid`, not `pid` itself."""
    threads = memory_bytes = 0
    held: dict[tuple[int, int], int] = {}
    mounts: dict[int, int] = {}
    for one in descendants(pid):
        with contextlib.suppress(OSError, ValueError, LookupError):
            place = f"/proc/{one}"
            fields = _read_status(place)
            threads += int(fields[b"Threads"])
            if b"VmPTE" not in fields:
                # Its first thread has ended, and with it all that /proc shows of the process; the
                # memory and the handles belong to the other threads. Or it is a zombie.
                place = _find_live_thread(place)
                fields = _read_status(place)
            memory_bytes += sum(int(fields[name].split()[0]) * _KB for name in _MEMORY_FIELDS)
            if not mounts:
                mounts = _measure_tmpfs(place)
            held |= _measure_handles(place, mounts)
    return ProcessUsage(threads, memory_bytes + sum(held.values()) + sum(mounts.values()))


def _read_status(place: str) -> dict[bytes, bytes]:
    with open(f"{place}/status", "rb") as file:
        return dict(line.split(b":", 1) for line in file.read().splitlines() if b":" in line)


def _find_live_thread(place: str) -> str:
    """Return the folder of a thread that has not ended. Raises LookupError if all have."""
    for name in os.listdir(f"{place}/task"):
        if b"VmPTE" in _read_status(thread := f"{place}/task/{name}"):
            return thread
    raise LookupError(place)


def _measure_tmpfs(place: str) -> dict[int, int]:
    """Return the bytes in the memory file systems of a process, by device: files and inodes. There
    are none in a tier that does not mount its own, or before it has."""
    found: dict[int, int] = {}
    for path in (TMP, SHM):
        with contextlib.suppress(OSError):
            device = os.stat(f"{place}/root{path}").st_dev
            if device not in {os.stat("/").st_dev, os.stat(path).st_dev}:
                now = os.statvfs(f"{place}/root{path}")
                used_inodes = now.f_files - now.f_ffree
                found[device] = (now.f_blocks - now.f_bfree) * now.f_frsize + used_inodes * INODE_BYTES
    return found


def _measure_handles(place: str, mounts: dict[int, int]) -> dict[tuple[int, int], int]:
    """Return the bytes behind handles, by device and inode, so that each counts once: sockets,
    pipes, and files without a name, unless their file system is counted as a whole."""
    found: dict[tuple[int, int], int] = {}
    try:
        names = os.listdir(f"{place}/fd")
    except PermissionError:
        # A program that its user cannot read keeps its handles from us: assume the worst.
        return {(-1, hash(place)): OPEN_FILES * SOCKET_BYTES}
    for name in names:
        with contextlib.suppress(OSError):
            info = os.stat(f"{place}/fd/{name}")
            if stat.S_ISSOCK(info.st_mode):
                found[info.st_dev, info.st_ino] = SOCKET_BYTES
            elif stat.S_ISFIFO(info.st_mode):
                found[info.st_dev, info.st_ino] = PIPE_BYTES
            elif stat.S_ISREG(info.st_mode) and info.st_nlink == 0 and info.st_dev not in mounts:
                found[info.st_dev, info.st_ino] = info.st_blocks * 512
    return found
