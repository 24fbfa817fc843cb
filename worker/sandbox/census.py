"""What the processes below one use, read from outside, so that nothing they do can hide it."""

from __future__ import annotations

import contextlib
from typing import NamedTuple

from worker.sandbox.descendants import descendants

_KB = 1024


class Used(NamedTuple):
    """`threads` of all processes; `memory_bytes` that is theirs alone, and memory that they share, once for each."""

    threads: int
    memory_bytes: int


def used_below(pid: int) -> Used:
    """All below `pid`, without it. Programs and libraries do not count: they are the machine's."""
    threads = memory_kb = 0
    for one in descendants(pid):
        with contextlib.suppress(OSError, ValueError, IndexError):
            with open(f"/proc/{one}/status", "rb") as file:
                fields = dict(line.split(b":", 1) for line in file.read().splitlines() if b":" in line)
            threads += int(fields[b"Threads"])
            for name in (b"RssAnon", b"RssShmem"):
                memory_kb += int(fields.get(name, b"0").split()[0])
    return Used(threads, memory_kb * _KB)
