"""arq's settings: for its own command, which runs a whole worker, and for our worker's jobs."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from typing import Any, ClassVar

import arq.worker
import msgspec

from shared.ids import nonce
from shared.settings import load, redis_url
from worker.arq.lease_worker import LeaseWorker
from worker.jobs.table import CRON, FUNCTIONS, probe
from worker.lease.lease import GuardianLink
from worker.process.worker_deps import WorkerDeps
from worker.process.worker_handle import guardian_config
from worker.process.worker_process import configure_process

# arq's command makes `arq.worker.Worker(...)` by that name; this line makes it make ours.
arq.worker.Worker = LeaseWorker  # type: ignore[misc]

_encoder = msgspec.msgpack.Encoder(enc_hook=repr)


async def startup(ctx: dict[str, Any]) -> None:
    """Build the parts of the worker and put them into arq's context."""
    settings, owner = configure_process(load()), nonce()
    mine = _start_guardian(owner)
    guardian_config(settings, redis_url(settings)).send(mine)
    link = GuardianLink(mine, lease_s=settings.worker.lease_s)
    deps = WorkerDeps(settings, queues=(), owner=owner, link=link)
    ctx.update(deps.context(), lease_loops=deps.make_loops)
    await deps.start()


async def shutdown(ctx: dict[str, Any]) -> None:
    """Close what `startup` opened."""
    if "deps" in ctx:
        await ctx["deps"].close()


class ArqSettings:
    """The settings that arq reads."""

    functions: ClassVar = [probe, *FUNCTIONS]
    cron_jobs: ClassVar = list(CRON)
    queue_name = "shoal:queue:jobs"
    health_check_key = "arq:health-check"  # arq's own would look like a queue
    on_startup = startup
    on_shutdown = shutdown
    job_serializer = _encoder.encode
    job_deserializer = msgspec.msgpack.decode
    log_results = False


def make_jobs_worker(context: dict[str, Any]) -> LeaseWorker:
    """Return an arq worker that only runs jobs: it starts nothing and handles no signals."""
    arguments = arq.worker.get_kwargs(ArqSettings)  # type: ignore[arg-type]
    ours = {"ctx": context, "handle_signals": False, "on_startup": None, "on_shutdown": None}
    return LeaseWorker(**{**arguments, **ours})  # type: ignore[arg-type]


def _start_guardian(owner: str) -> socket.socket:
    """Start a guardian as our child, because no guardian started us. Return our end of its link."""
    mine, theirs = socket.socketpair()
    with theirs:
        fd = theirs.fileno()
        arguments = ["worker.process.guardian", owner, str(fd), str(os.getpid())]
        subprocess.Popen([sys.executable, "-m", *arguments], pass_fds=[fd])
    return mine
