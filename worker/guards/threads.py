"""Work on files, in threads of its own: a slow or dead volume takes these, and never the event
loop."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Concatenate, Final, ParamSpec, TypeVar

from shared.errors import ToolFailed

THREADS: Final = 8
LIMIT_S: Final = 10.0
GRACE_S: Final = 1.0
"""How long a cancelled call waits for its thread, so that as a rule nothing of it goes on when it
has returned."""

P = ParamSpec("P")
T = TypeVar("T")


class WorkStopped(Exception):
    """Raised in the thread, between two steps, when nobody waits for the work any more."""


class StopSignal:
    """Asked by work between its steps, and before the step that cannot be taken back."""

    def __init__(self) -> None:
        self._event = threading.Event()

    def set(self) -> None:
        self._event.set()

    def check(self) -> None:
        """Raises Stopped when the work is to end."""
        if self._event.is_set():
            raise WorkStopped

    def wait(self, seconds: float) -> None:
        """Wait, unless the work is to end: then raise Stopped."""
        if self._event.wait(seconds):
            raise WorkStopped


class FileThreads:
    """A few threads for all sessions of a process. `limit_s` is how long one call may take, waiting
    included."""

    def __init__(self, threads: int = THREADS, *, limit_s: float = LIMIT_S) -> None:
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="files")
        self._limit_s = limit_s

    async def run(self, work: Callable[Concatenate[StopSignal, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call `work(stop, ...)` in a thread. Raises what it raises, and ToolFailed when the time
        is over. Work that is given up sees it in `stop`; what waits in a call to the system ends
        when the system answers."""
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
                await _wait_for_thread(job)

    def close(self) -> None:
        """Take no more work; what runs is not waited for."""
        self._pool.shutdown(wait=False, cancel_futures=True)


async def _wait_for_thread(job: Future[T]) -> None:
    """Wait for a thread that was told to stop. `Future.cancel` would not say whether it still
    runs."""
    loop = asyncio.get_running_loop()
    over = asyncio.Event()

    def set_over(_: Future[T]) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(over.set)

    job.add_done_callback(set_over)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(GRACE_S):
            await over.wait()
