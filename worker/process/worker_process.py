"""A worker process under its guardian: built, run until it is drained, closed.

arq is not imported here. It is loaded once the worker is ready, see `worker.process.late_jobs`.
"""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import Sequence

from shared import log as shared_log
from shared.settings import Settings, secrets_of
from shared.tracing import process as tracing
from worker.process.guardian_link import GuardianLink
from worker.process.late_jobs import LateJobs
from worker.process.loop_group import LoopGroup
from worker.process.worker_deps import QUEUES, WorkerDeps


def run(settings: Settings, *, queues: Sequence[str], owner: str, link: socket.socket, slot: int) -> None:
    """Serve these queues (all when none is named) until a SIGTERM has drained them. Raises
    SettingsError."""
    loop = event_loop()
    asyncio.set_event_loop(loop)
    deps = WorkerDeps(
        configure_process(settings),
        queues=queues or QUEUES,
        owner=owner,
        link=GuardianLink(link, lease_s=settings.worker.lease_s),
        slot=slot,
    )
    loop_group = LoopGroup(drain_s=lambda: settings.worker.drain_s, give_up=lambda: working.cancel())
    loop.add_signal_handler(signal.SIGTERM, loop_group.on_signal, signal.SIGTERM)
    # Ctrl-C in a terminal reaches the whole process group; the guardian decides what happens. The
    # signal has a handler and is not ignored: every process started here would inherit the latter.
    loop.add_signal_handler(signal.SIGINT, lambda: None)
    working = loop.create_task(_serve(deps, loop_group))
    try:
        loop.run_until_complete(working)
    except asyncio.CancelledError:
        pass  # the drain was given up
    finally:
        if deps.started:
            loop.run_until_complete(deps.close())


async def _serve(deps: WorkerDeps, loop_group: LoopGroup) -> None:
    await deps.start()
    jobs = LateJobs(deps.context())
    loops = deps.make_loops(jobs)
    if "jobs" in deps.queues:  # a worker for turns alone would never run what it queues
        deps.start_background("arq", jobs.run(deps.until_connected))
    try:
        await loop_group.run(loops)
    finally:
        await jobs.close()


def configure_process(settings: Settings) -> Settings:
    """Set up log and traces of this process, and keep the secrets of the settings out of both.
    Return the settings. Raises SettingsError."""
    shared_log.configure(settings.log, process="worker", for_good=True)
    for secret in secrets_of(settings):
        shared_log.redact(secret)
    tracing.start(settings.tracing, process="worker")
    return settings


def event_loop() -> asyncio.AbstractEventLoop:
    """Return a new event loop: uvloop's where it is installed."""
    try:
        import uvloop
    except ImportError:  # no wheel for this platform
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()
