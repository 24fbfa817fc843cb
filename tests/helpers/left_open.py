"""Find what a test leaves open, so that it fails that test and not the one in which the collector finds it."""

from __future__ import annotations

import asyncio
import gc
import sys
import threading
import time
from asyncio import base_subprocess, runners, selector_events
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any, Final, TypeVar
from weakref import WeakSet

T = TypeVar("T")

GRACE_S: Final = 2.0
"""How long a thread or a child process that is just ending may still take."""

_left: Final[list[str]] = []
_subprocesses: Final[WeakSet[Any]] = WeakSet()


def watch() -> None:
    """Look at each event loop when it is closed, from now on."""
    _watch_loops()
    _watch_tasks()
    _watch_subprocesses()


def collect_first() -> None:
    """Take what exists now out of the collector's sight.

    A later collection then looks only at what tests have made, which takes a millisecond and not half a second.
    """
    gc.collect()
    gc.freeze()


class LeftOpen:
    """What one test leaves open. `begin` before its set-up; `end` after its teardown."""

    def __init__(self, *, grace_s: float = GRACE_S) -> None:
        self._grace_s = grace_s
        self._threads: set[threading.Thread] = set()
        self._children: set[int] = set()
        self._expected: set[int] = set()

    def begin(self) -> None:
        """Remember what exists already."""
        _forget()
        self._threads, self._children = set(threading.enumerate()), child_ids()

    @contextmanager
    def shared(self) -> Iterator[None]:
        """Expect what the block starts to outlive the test: a fixture that several tests use."""
        threads, children = set(threading.enumerate()), child_ids()
        yield
        self._threads |= set(threading.enumerate()) - threads
        self._children |= child_ids() - children

    def expect(self, pid: int) -> None:
        """Let this child process stay, whichever test started it: the server that all tests share."""
        self._expected.add(pid)

    def end(self) -> list[str]:
        """Return a description of each connection, task, thread, child process and unhappy finalizer."""
        left = _finalizers()
        left += [f"the thread {thread.name!r}" for thread in self._still(self._new_threads)]
        left += [f"the process {pid}, {_command_line(pid)}" for pid in self._still(self._new_children)]
        left += _left
        _left.clear()
        gc.freeze()
        return left

    def _still(self, find: Callable[[], list[T]]) -> list[T]:
        """Return what `find` still finds after the grace."""
        deadline = time.monotonic() + self._grace_s
        while (found := find()) and time.monotonic() < deadline:
            time.sleep(0.01)
        return found

    def _new_threads(self) -> list[threading.Thread]:
        new = set(threading.enumerate()) - self._threads
        return sorted(new, key=lambda thread: thread.name)

    def _new_children(self) -> list[int]:
        return sorted(child_ids() - self._children - self._expected)


@asynccontextmanager
async def in_shared_loop() -> AsyncIterator[None]:
    """Look at an event loop that goes on after the test: what the block opens in it, the block has to close."""
    loop: Any = asyncio.get_running_loop()
    connections, tasks = _connections(loop), _tasks(loop)
    yield
    if (threads := loop._default_executor) is not None:  # of `asyncio.to_thread`, which a loop ends with itself
        loop._default_executor = None
        threads.shutdown()
    await asyncio.sleep(0)  # what was cancelled at last ends here
    _left.extend(_addresses(transport) for transport in _connections(loop) - connections)
    _left.extend(f"the task {task!r}" for task in _tasks(loop) - tasks - {asyncio.current_task()})


def _forget() -> None:
    """Drop what was found outside of any test, and what a failed test's traceback kept alive until now."""
    for name in ("last_exc", "last_type", "last_value", "last_traceback"):
        if hasattr(sys, name):
            delattr(sys, name)
            _finalizers()
    _left.clear()


def child_ids() -> set[int]:
    """The process ids of this process's children; empty where the system does not list them."""
    found: set[int] = set()
    for listed in Path("/proc/self/task").glob("*/children"):
        with suppress(OSError):  # the thread has ended meanwhile
            found.update(int(pid) for pid in listed.read_text().split())
    return found


def _finalizers() -> list[str]:
    """Collect, and return what finalizers complained about."""
    complaints: list[str] = []
    before = sys.unraisablehook

    def note(unraisable: Any) -> None:
        complaints.append(f"{unraisable.object!r}: {unraisable.exc_value!r}")

    sys.unraisablehook = note
    try:
        gc.collect()
    finally:
        sys.unraisablehook = before
    return complaints


def _command_line(pid: int) -> str:
    try:
        line = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return "which has just ended"
    return line.replace(b"\0", b" ").decode(errors="replace").strip() or "which has ended and was not waited for"


def _watch_loops() -> None:
    base: Any = selector_events.BaseSelectorEventLoop
    close = base.close

    def watched(loop: Any) -> None:
        if not loop.is_closed():
            for transport in _connections(loop):
                _left.append(_addresses(transport))
                transport._sock.close()
                transport._sock = None
            for child in list(_subprocesses):
                if child._loop is loop and not child._closed:
                    _left.append(f"the transport of process {child.get_pid()}")
                    child.close()
        close(loop)

    base.close = watched


def _connections(loop: Any) -> set[Any]:
    return {transport for transport in list(loop._transports.values()) if not transport.is_closing()}


def _addresses(transport: Any) -> str:
    return f"the connection {transport.get_extra_info('sockname')} to {transport.get_extra_info('peername')}"


def _watch_tasks() -> None:
    module: Any = runners
    cancel_all = module._cancel_all_tasks

    def watched(loop: asyncio.AbstractEventLoop) -> None:
        _left.extend(f"the task {task!r}" for task in _tasks(loop))
        cancel_all(loop)

    module._cancel_all_tasks = watched


def _tasks(loop: asyncio.AbstractEventLoop) -> set[asyncio.Task[Any]]:
    return {task for task in asyncio.all_tasks(loop) if _is_ours(task)}


def _is_ours(task: asyncio.Task[Any]) -> bool:
    """Whether it runs our code: libraries keep tasks of their own, and a loop closes generators in tasks."""
    code = getattr(task.get_coro(), "cr_code", None)
    return code is not None and "site-packages" not in code.co_filename


def _watch_subprocesses() -> None:
    base: Any = base_subprocess.BaseSubprocessTransport
    connect = base.__init__

    def watched(transport: Any, *args: Any, **kwargs: Any) -> None:
        connect(transport, *args, **kwargs)
        _subprocesses.add(transport)

    base.__init__ = watched
