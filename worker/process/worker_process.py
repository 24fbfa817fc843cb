"""A worker process under its guardian: joined, served until it is drained, closed.

arq is not here: what it is needed for comes once the worker is ready, see `worker.arq.late_jobs`.
"""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import Sequence

from shared import log as shared_log
from shared.settings import Settings, secrets_of
from shared.tracing import process as tracing
from worker.arq.late_jobs import LateJobs
from worker.process.guardian_link import GuardianLink
from worker.process.loop_group import LoopGroup
from worker.process.worker_deps import QUEUES, WorkerDeps


def run(settings: Settings, *, queues: Sequence[str], owner: str, link: socket.socket, slot: int) -> None:
    """Serve these queues (none named: all) until a SIGTERM has drained them. Raises
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
    serving = LoopGroup(drain_s=lambda: settings.worker.drain_s, give_up=lambda: working.cancel())
    loop.add_signal_handler(signal.SIGTERM, serving.on_signal, signal.SIGTERM)
    # Ctrl-C in a terminal reaches the whole group; the guardian decides what becomes of it. Heard and not ignored,
    # for what this process ignores, everything that it starts would ignore as well.
    loop.add_signal_handler(signal.SIGINT, lambda: None)
    working = loop.create_task(_serve(deps, serving))
    try:
        loop.run_until_complete(working)
    except asyncio.CancelledError:
        pass  # the drain was given up
    finally:
        if deps.started:
            loop.run_until_complete(deps.close())


async def _serve(deps: WorkerDeps, serving: LoopGroup) -> None:
    await deps.start()
    jobs = LateJobs(deps.context())
    loops = deps.make_loops(jobs)
    if "jobs" in deps.queues:  # what a worker for turns alone queued at its times, it would not run
        deps.start_background("arq", jobs.run(deps.until_connected))
    try:
        await serving.run(loops)
    finally:
        await jobs.close()


def configure_process(settings: Settings) -> Settings:
    """The same; log and traces of this process are set up by them, and their secrets are kept out
    of both. Raises SettingsError."""
    shared_log.configure(settings.log, process="worker", for_good=True)
    for secret in secrets_of(settings):
        shared_log.redact(secret)
    tracing.start(settings.tracing, process="worker")
    return settings


def event_loop() -> asyncio.AbstractEventLoop:
    """uvloop's, where there is one."""
    try:
        import uvloop
    except ImportError:  # no wheel for this platform
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()
