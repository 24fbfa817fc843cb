"""A thread for blocking calls, one at a time. It does not keep the process alive, whatever it waits
for."""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


class DedicatedThread:
    """A thread that starts when it is created and ends with `end`."""

    def __init__(self, name: str) -> None:
        self._calls = queue.SimpleQueue[Callable[[], None] | None]()
        threading.Thread(target=self._work, name=name, daemon=True).start()

    async def run(self, call: Callable[[], T]) -> T:
        """Return or raise what the call does. If the caller is cancelled, the call continues in the
        background."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[T] = loop.create_future()

        def set_outcome(result: T | None, failed: BaseException | None) -> None:
            if done.done():
                return
            if failed is not None:
                done.set_exception(failed)
            else:
                done.set_result(result)  # type: ignore[arg-type]

        def work() -> None:
            result, failed = None, None
            try:
                result = call()
            except BaseException as exc:
                failed = exc
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
                loop.call_soon_threadsafe(set_outcome, result, failed)

        self._calls.put(work)
        return await done

    def end(self, last: Callable[[], None]) -> None:
        """Accept no more calls; `last` runs after all others."""
        self._calls.put(last)
        self._calls.put(None)

    def _work(self) -> None:
        while (call := self._calls.get()) is not None:
            call()
