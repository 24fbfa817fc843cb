"""A clock of a server that a test sets: a library that is loaded into the server process and adds an offset."""

from __future__ import annotations

import mmap
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.helpers.need import need

_SOURCE: Final = r"""
#define _GNU_SOURCE
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static long offset(void) {
    static volatile long *seconds;
    if (!seconds) seconds = mmap(0, 8, PROT_READ, MAP_SHARED, open(CLOCK_FILE, O_RDONLY), 0);
    return *seconds;
}
int clock_gettime(clockid_t clock, struct timespec *now) {
    int failed = syscall(SYS_clock_gettime, clock, now);
    /* The monotonic clocks do not step. */
    if (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE) now->tv_sec += offset();
    return failed;
}
int gettimeofday(struct timeval *now, void *zone) {
    struct timespec exact;
    clock_gettime(CLOCK_REALTIME, &exact);
    now->tv_sec = exact.tv_sec;
    now->tv_usec = exact.tv_nsec / 1000;
    return 0;
}
time_t time(time_t *seconds) {
    struct timespec exact;
    clock_gettime(CLOCK_REALTIME, &exact);
    if (seconds) *seconds = exact.tv_sec;
    return exact.tv_sec;
}
"""


class ServerClock:
    """The wall clock of the servers that `server_clock` was around when they were started."""

    def __init__(self, shown: mmap.mmap) -> None:
        self._shown = shown
        self.offset_s = 0

    def step(self, seconds: int) -> None:
        """Set it forward, or back."""
        self.offset_s += seconds
        self._shown[:8] = self.offset_s.to_bytes(8, "little", signed=True)


@contextmanager
def server_clock(folder: Path) -> Iterator[ServerClock]:
    """A clock for every process that is started in the block, which must be servers alone."""
    need("cc", install="a C compiler (Debian: apt-get install gcc libc6-dev)")
    source, library, file = folder / "clock.c", folder / "clock.so", folder / "clock"
    source.write_text(_SOURCE)
    # The path is part of the library: a server gets few variables of the environment.
    subprocess.run(["cc", "-O1", "-shared", "-fPIC", f'-DCLOCK_FILE="{file}"', "-o", library, source], check=True)
    file.write_bytes(bytes(8))
    with file.open("r+b") as opened, mmap.mmap(opened.fileno(), 8) as shown:
        os.environ["LD_PRELOAD"] = str(library)
        try:
            yield ServerClock(shown)
        finally:
            os.environ.pop("LD_PRELOAD", None)
