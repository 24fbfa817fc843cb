"""A worker process: `python -m worker` starts it under a guardian; `arq worker.main.WorkerSettings` works, too."""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import socket
import subprocess
import sys
from typing import Any, ClassVar

import arq.worker
import msgspec

from shared import log as shared_log
from shared.errors import SettingsError
from shared.ids import nonce
from shared.settings import Settings, load, redis_url, secrets_of
from shared.tracing import process as tracing
from worker.deps import QUEUES, WorkerDeps
from worker.guard_link import GuardLink
from worker.guardian import queue_name
from worker.jobs.probe import probe
from worker.jobs.table import CRON, FUNCTIONS
from worker.lease_worker import LeaseWorker
from worker.ward import Config

# arq's command makes `arq.worker.Worker(...)` by that name; this is how it comes to make ours.
arq.worker.Worker = LeaseWorker  # type: ignore[misc]

_encoder = msgspec.msgpack.Encoder(enc_hook=repr)


async def startup(ctx: dict[str, Any]) -> None:
    """Join what the worker needs and put it into arq's context."""
    settings: Settings = ctx.get("settings") or _settings()
    owner: str = ctx.get("owner") or nonce()
    fd: int | None = ctx.get("guard_fd")
    if fd is None:
        fd = _start_guardian(settings, owner)
    deps = WorkerDeps(
        settings,
        queues=ctx.get("queues") or QUEUES,
        owner=owner,
        link=GuardLink.from_fd(fd, lease_s=settings.worker.lease_s),
        slot=ctx.get("slot", 0),
    )
    ctx.update(
        deps=deps,
        client=deps.client,
        redis_url=deps.redis_url,
        drain_s=settings.worker.drain_s,
        lease_loops=deps.make_loops,
    )
    await deps.start()


async def shutdown(ctx: dict[str, Any]) -> None:
    """Close what `startup` opened."""
    if "deps" in ctx:
        await ctx["deps"].close()


class WorkerSettings:
    """What arq needs to know."""

    functions: ClassVar = [probe, *FUNCTIONS]
    cron_jobs: ClassVar = list(CRON)
    queue_name = "shoal:queue:jobs"
    health_check_key = "arq:health-check"  # arq's own would look like a queue
    on_startup = startup
    on_shutdown = shutdown
    job_serializer = _encoder.encode
    job_deserializer = msgspec.msgpack.decode
    log_results = False


def main() -> int:
    """One worker under a guardian: `--guard FD,OWNER --slot N [queue ...]`."""
    parser = argparse.ArgumentParser(prog="python -m worker.main")
    parser.add_argument("queues", nargs="*", type=queue_name)
    parser.add_argument("--guard", required=True, help="file descriptor of the link to the guardian, and our nonce")
    parser.add_argument("--slot", type=int, default=0)
    given = parser.parse_args()
    fd, owner = given.guard.split(",")
    # Ctrl-C in a terminal reaches the whole group; the guardian decides what becomes of it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    asyncio.set_event_loop(event_loop())
    context = {"owner": owner, "guard_fd": int(fd), "slot": given.slot, "queues": given.queues}
    try:
        context["settings"] = _settings()
        kwargs = arq.worker.get_kwargs(WorkerSettings)  # type: ignore[arg-type]
        LeaseWorker(**{**kwargs, "ctx": context}).run()  # type: ignore[arg-type]
    except SettingsError as exc:
        sys.stderr.write(f"{exc}\n")
        return 2
    return 0


def _settings() -> Settings:
    return settings_of_process(load())


def settings_of_process(settings: Settings) -> Settings:
    """The same; log and traces of this process are set up by them, and their secrets are kept out of both. Raises
    SettingsError."""
    shared_log.configure(settings.log, process="worker", for_good=True)
    for secret in secrets_of(settings):
        shared_log.redact(secret)
    tracing.start(settings.tracing, process="worker")
    return settings


def _start_guardian(settings: Settings, owner: str) -> int:
    """A guardian as our child, for a worker that was not started by one."""
    worker = settings.worker
    pipe = Config(redis_url(settings), worker.lease_s, worker.drain_s, (), 1).hand_over()
    mine, theirs = socket.socketpair()
    with theirs:
        command = [sys.executable, "-m", "worker.guardian", str(pipe), owner, str(theirs.fileno()), str(os.getpid())]
        subprocess.Popen(command, pass_fds=[pipe, theirs.fileno()])
    os.close(pipe)
    return mine.detach()


def event_loop() -> asyncio.AbstractEventLoop:
    """uvloop's, where there is one."""
    try:
        import uvloop
    except ImportError:  # no wheel for this platform
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


if __name__ == "__main__":
    sys.exit(main())
