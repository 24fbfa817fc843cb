"""A worker process under its guardian: built, run until it is drained, closed. arq is imported once
the worker is ready. It imports redis-py: a third of all that a worker imports, and no turn needs
it."""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import Sequence
from importlib import import_module
from typing import Any

from shared import log as shared_log
from shared.process.service import freeze_heap, loop_factory
from shared.process.stderr import unbuffer_stderr
from shared.settings import Settings, secrets_of
from shared.tracing import process as tracing
from worker.lease.lease import GuardianLink, Lease
from worker.process.loop_group import LoopGroup
from worker.process.worker_deps import WorkerDeps


class LateJobs:
    """Runs plain jobs and queues timed ones, in a worker that is ready before arq is imported."""

    def __init__(self, deps: WorkerDeps) -> None:
        self._deps = deps
        # A LeaseWorker. Any, because its module imports arq.
        self._worker: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._ending = asyncio.Event()
        self._ended = asyncio.Event()

    async def __call__(self, lease: Lease) -> None:
        """Run a plain job. One that is claimed before arq is imported waits for it."""
        worker = await asyncio.shield(self._worker)
        await worker.run_leased(lease)

    async def run(self) -> None:
        """Import arq in a thread, then queue jobs at their times until `close`."""
        try:
            await self._deps.until_connected()
            arq_settings = await asyncio.to_thread(import_module, "worker.arq.settings")
            worker = arq_settings.make_jobs_worker(self._deps.context())
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


def run(settings: Settings, *, queues: Sequence[str], owner: str, link: socket.socket, slot: int | None) -> None:
    """Serve these queues (() is all) until a SIGTERM drained them. Without a slot this is a spare:
    it starts as far as it can, and waits for the slot. Raises SettingsError."""
    loop = event_loop()
    asyncio.set_event_loop(loop)
    configure_process(settings)
    guardian = GuardianLink(link, lease_s=settings.worker.lease_s)
    deps = WorkerDeps(settings, queues=queues, owner=owner, link=guardian)
    drain_s = settings.worker.drain_s
    loop_group = LoopGroup(drain_s=lambda: drain_s, give_up=lambda: working.cancel())
    loop.add_signal_handler(signal.SIGTERM, loop_group.on_signal, signal.SIGTERM)
    # Ctrl-C in a terminal reaches the whole process group; the guardian decides what happens. The
    # signal has a handler and is not ignored: every process started here would inherit the latter.
    loop.add_signal_handler(signal.SIGINT, lambda: None)
    working = loop.create_task(_serve(deps, loop_group, guardian, slot))
    try:
        loop.run_until_complete(working)
    except asyncio.CancelledError:
        pass  # the drain was given up
    finally:
        if deps.started:
            loop.run_until_complete(deps.close())


async def _serve(deps: WorkerDeps, loop_group: LoopGroup, guardian: GuardianLink, slot: int | None) -> None:
    if slot is None:
        if "jobs" in deps.queues:
            await asyncio.to_thread(import_module, "worker.arq.settings")
        await deps.warm_up()
        slot = await guardian.slot_to_fill()
        if slot is None:
            await deps.close()
            return
    await deps.start(slot)
    jobs = LateJobs(deps)
    loops = deps.make_loops(jobs)
    if "jobs" in deps.queues:  # a worker for turns alone would never run what it queues
        deps.start_background("arq", jobs.run())
    try:
        await loop_group.run(loops)
    finally:
        await jobs.close()


def configure_process(settings: Settings) -> Settings:
    """Set up log and traces of this process, and keep the secrets of the settings out of both.
    Return the settings. Raises SettingsError."""
    unbuffer_stderr()
    shared_log.configure(settings.log, process="worker", for_good=True)
    for secret in secrets_of(settings):
        shared_log.redact(secret)
    tracing.start(settings.tracing, process="worker")
    return settings


def event_loop() -> asyncio.AbstractEventLoop:
    """Return a new event loop: uvloop's where it is installed."""
    return (loop_factory() or asyncio.new_event_loop)()
