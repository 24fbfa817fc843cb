"""A thread pool for work on files: a slow or dead volume blocks its threads, not the event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Concatenate, Final, ParamSpec, TypeVar

from shared.errors import ToolFailed

THREADS: Final = 8
LIMIT_S: Final = 10.0
# Wait of a cancelled call for its thread: normally nothing of it runs when it has returned.
GRACE_S: Final = 1.0
P = ParamSpec("P")
T = TypeVar("T")


class WorkStopped(Exception):
    """Raised in the thread, between two steps, when its caller has given the work up."""


class StopSignal:
    """A flag that work checks between its steps, and before the step that cannot be undone."""

    def __init__(self) -> None:
        self._event = threading.Event()

    def set(self) -> None:
        self._event.set()

    def check(self) -> None:
        """Raise WorkStopped if the work should end."""
        if self._event.is_set():
            raise WorkStopped

    def wait(self, seconds: float) -> None:
        """Sleep, and raise WorkStopped as soon as the work should end."""
        if self._event.wait(seconds):
            raise WorkStopped


class FileThreads:
    """Threads for all sessions of a process. `limit_s` limits a call with its wait for a thread."""

    def __init__(self, threads: int = THREADS, *, limit_s: float = LIMIT_S) -> None:
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="files")
        self._limit_s = limit_s

    async def run(self, work: Callable[Concatenate[StopSignal, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call `work(stop, ...)` in a thread. Raises what it raises, and ToolFailed when the time
        is over: `stop` is set then, and a thread in a system call ends when that returns."""
        stop = StopSignal()
        job = self._pool.submit(work, stop, *args, **kwargs)
        try:
            async with asyncio.timeout(self._limit_s):
                return await asyncio.wrap_future(job)
        except TimeoutError:
            stop.set()
            raise ToolFailed(
                f"the workspace did not answer within {self._limit_s:g} s. Try again later, or go on without it"
            ) from None
        finally:
            if not job.done():
                stop.set()
                over = asyncio.wrap_future(job)
                # Its error has no reader any more.
                over.add_done_callback(lambda one: one.cancelled() or one.exception())
                await asyncio.wait([over], timeout=GRACE_S)

    def close(self) -> None:
        """Accept no more work; do not wait for running work."""
        self._pool.shutdown(wait=False, cancel_futures=True)
