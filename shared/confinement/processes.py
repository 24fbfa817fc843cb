"""Settings of this process (prctl(2), through ctypes), and all processes below one: list them, and
kill them.

A caller that kills must be their subreaper (prctl(2)): a process that loses its parent then becomes
the caller's child, so none escapes, even into a session of its own, and "no children left" means
that nothing is left."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Final

DEATH_SIGNAL: Final = 1  # sent to this process when the thread that started it ends
DUMPABLE: Final = 4  # 0: others of the same user can neither trace it nor read its /proc files
SECCOMP: Final = 22
SUBREAPER: Final = 36  # orphans below this process become its children
NO_NEW_PRIVILEGES: Final = 38
AMBIENT = 47
AMBIENT_CLEAR_ALL = 4

_libc: Final = ctypes.CDLL(None, use_errno=True)


def prctl(option: int, *values: int) -> None:
    """Call prctl. Raises OSError."""
    padded = [*values, 0, 0, 0, 0][:4]
    if _libc.prctl(option, *map(ctypes.c_ulong, padded)) != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"prctl {option} is refused: {os.strerror(code)}")


def wake_on_signals() -> int:
    """Return a descriptor that is readable after a signal, also that of an ended child."""
    read, write = os.pipe()
    for end in (read, write):
        os.set_blocking(end, False)
    signal.set_wakeup_fd(write, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    return read


def children(pid: int) -> list[int]:
    """Return the children of `pid`, including zombies."""
    try:
        threads = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return []
    found: list[int] = []
    for thread in threads:
        try:
            with open(f"/proc/{pid}/task/{thread}/children", "rb") as file:
                found += map(int, file.read().split())
        except FileNotFoundError:
            # Either the thread has ended, or the kernel lacks CONFIG_PROC_CHILDREN.
            if os.path.exists(f"/proc/{pid}/task/{thread}"):
                return _search_children(pid)
        except OSError:
            continue
    return found


def descendants(pid: int) -> Iterator[int]:
    """Yield every process below `pid`. A process forked meanwhile may be missed; call it again."""
    waiting = [pid]
    while waiting:
        found = children(waiting.pop())
        waiting += found
        yield from found


def kill_descendants() -> dict[int, int]:
    """Kill everything below this process and wait; return the wait statuses of its children. First
    all are stopped: a stopped process cannot fork, so no fork bomb outruns the kill."""
    me = os.getpid()
    stopped: set[int] = set()
    while fresh := _signal_all(me, signal.SIGSTOP, but=stopped):
        stopped |= fresh
    statuses: dict[int, int] = {}
    with contextlib.suppress(ChildProcessError):
        while True:
            _signal_all(me, signal.SIGKILL)
            pid, status = os.waitpid(-1, 0)
            # Collect all that have ended before looking again: with a thousand processes, a look
            # at each of them after every single one would take long.
            while pid:
                statuses[pid] = status
                pid, status = os.waitpid(-1, os.WNOHANG)
    return statuses


def _signal_all(top: int, number: int, but: Collection[int] = ()) -> set[int]:
    """Signal all below `top` except some; return those signalled. Each is signalled as soon as it
    is seen, because a fork bomb leaves no time for a second pass. Whole process groups are
    signalled: that is one step for the kernel, so no group multiplies faster than it is stopped."""
    own_group = os.getpgrp()
    seen: set[int] = set()
    groups: set[int] = set()
    for pid in descendants(top):
        if pid in but:
            continue
        seen.add(pid)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            group = os.getpgid(pid)
            if group == own_group:  # just forked, and not yet out of our group: never signal ourselves
                os.kill(pid, number)
            elif group not in groups:
                groups.add(group)
                os.killpg(group, number)
    return seen


def _search_children(parent: int) -> list[int]:
    found = []
    for name in os.listdir("/proc"):
        with contextlib.suppress(OSError, IndexError):
            if name.isdigit():
                # The name, in parentheses, may itself contain blanks and parentheses.
                fields = Path("/proc", name, "stat").read_bytes().rpartition(b")")[2].split()
                if int(fields[1]) == parent:
                    found.append(int(name))
    return found
