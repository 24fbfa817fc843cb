"""arq's jobs in a worker that is ready before arq is imported."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from importlib import import_module
from typing import Any

from shared.process.heap import freeze_heap
from worker.lease.lease import Lease


class LateJobs:
    """Runs plain jobs, and queues those that have a time.

    arq imports redis-py: a third of all that a worker imports, and no turn needs it. `context` is
    the `ctx` of the jobs.
    """

    def __init__(self, context: dict[str, Any]) -> None:
        self._context = context
        # A LeaseWorker. Any, because its module imports arq.
        self._worker: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._ending = asyncio.Event()
        self._ended = asyncio.Event()

    async def __call__(self, lease: Lease) -> None:
        """Run a plain job. One that is claimed before arq is imported waits for it."""
        worker = await asyncio.shield(self._worker)
        await worker.run_leased(lease)

    async def run(self, after: Callable[[], Awaitable[None]]) -> None:
        """Await `after`, import arq in a thread, then queue jobs at their times until `close`."""
        try:
            await after()
            arq_settings = await asyncio.to_thread(import_module, "worker.arq.settings")
            worker = arq_settings.make_jobs_worker(self._context)
            freeze_heap()
            worker.open()
            # From here on the jobs that wait in `__call__` run.
            self._worker.set_result(worker)
            await worker.queue_timed_jobs(self._ending)
        finally:
            self._worker.cancel()
            self._ended.set()

    async def close(self) -> None:
        """Return when nothing more is queued, and the connections are closed."""
        self._ending.set()
        if self._worker.done() and not self._worker.cancelled():
            await self._ended.wait()
            await self._worker.result().close()
