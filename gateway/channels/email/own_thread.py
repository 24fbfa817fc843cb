"""A thread for calls that block, one after the other. It ends with its process, whatever it waits
for."""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


class OwnThread:
    """Begun when it is made, ended by `end`."""

    def __init__(self, name: str) -> None:
        self._calls = queue.SimpleQueue[Callable[[], None] | None]()
        threading.Thread(target=self._work, name=name, daemon=True).start()

    async def run(self, call: Callable[[], T]) -> T:
        """What the call returns or raises. Whoever is cancelled here leaves it behind, still under
        way."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[T] = loop.create_future()

        def settle(result: T | None, failed: BaseException | None) -> None:
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
                loop.call_soon_threadsafe(settle, result, failed)

        self._calls.put(work)
        return await done

    def end(self, last: Callable[[], None]) -> None:
        """Nothing more comes; `last` is called behind everything else."""
        self._calls.put(last)
        self._calls.put(None)

    def _work(self) -> None:
        while (call := self._calls.get()) is not None:
            call()
