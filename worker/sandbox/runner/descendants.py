"""All processes below this one: seen and killed, also those that went into a session of their own.

Whoever uses it is their subreaper (see prctl(2)): a process that loses its parent becomes its
child, so that none gets away, and "no child left" means that nothing is.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Collection, Iterator
from typing import Final

_PARENT: Final = 1  # the field of /proc/PID/stat, counted from behind the name


def children(pid: int) -> list[int]:
    """The processes that have `pid` as their parent, those that ended and were not waited for among
    them."""
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
            if os.path.exists(f"/proc/{pid}/task/{thread}"):
                return _search_children(pid)  # a kernel without CONFIG_PROC_CHILDREN
        except OSError:
            continue
    return found


def descendants(pid: int) -> Iterator[int]:
    """Every process below `pid`. One that forks meanwhile may be missed; ask again."""
    waiting = [pid]
    while waiting:
        found = children(waiting.pop())
        waiting += found
        yield from found


def kill_descendants() -> dict[int, int]:
    """Kill everything below this process, and wait until nothing is left; the wait statuses of
    those that were its children. All are stopped before one is killed: what is stopped makes no
    more of its kind."""
    me = os.getpid()
    stopped: set[int] = set()
    while fresh := _signal_all(me, signal.SIGSTOP, but=stopped):
        stopped |= fresh
    statuses: dict[int, int] = {}
    with contextlib.suppress(ChildProcessError):
        while True:
            _signal_all(me, signal.SIGKILL)
            pid, status = os.waitpid(-1, 0)
            while pid:  # all that are dead by now: to look for the rest after each one takes long, when they are many
                statuses[pid] = status
                pid, status = os.waitpid(-1, os.WNOHANG)
    return statuses


def _signal_all(top: int, number: int, but: Collection[int] = ()) -> set[int]:
    """Signal all below `top` but some, each as soon as it is seen: whoever has to get a word in
    among a thousand processes has little time. Whole groups, which is one step for the kernel: none
    multiplies faster than that."""
    mine = os.getpgrp()
    seen: set[int] = set()
    groups: set[int] = set()
    for pid in descendants(top):
        if pid in but:
            continue
        seen.add(pid)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            group = os.getpgid(pid)
            if group == mine:  # it has not got so far as to leave ours
                os.kill(pid, number)
            elif group not in groups:
                groups.add(group)
                os.killpg(group, number)
    return seen


def _search_children(parent: int) -> list[int]:
    found = []
    for name in os.listdir("/proc"):
        with contextlib.suppress(OSError, IndexError):
            if name.isdigit() and int(_stat_fields(int(name))[_PARENT]) == parent:
                found.append(int(name))
    return found


def _stat_fields(pid: int) -> list[bytes]:
    with open(f"/proc/{pid}/stat", "rb") as file:
        return file.read().rpartition(b")")[2].split()
