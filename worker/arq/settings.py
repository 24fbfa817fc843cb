"""arq's settings, and the worker that they make, under our guardian or under arq's own command."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from typing import Any, ClassVar

import arq.worker
import msgspec
from arq.connections import RedisSettings

from shared.confinement.own_process import hide_process
from shared.ids import nonce
from shared.settings import Settings, load, redis_url
from shared.store import keys
from worker.arq.lease_worker import LeaseWorker
from worker.jobs.table import CRON, FUNCTIONS, ask_model, probe, run_subagent, run_turn
from worker.lease.lease import GuardianLink
from worker.process.worker_deps import WorkerDeps
from worker.process.worker_handle import guardian_config
from worker.process.worker_process import configure_process, event_loop

# arq's command makes `arq.worker.Worker(...)` by that name; this line makes it make ours.
arq.worker.Worker = LeaseWorker  # type: ignore[misc]

_encoder = msgspec.msgpack.Encoder(enc_hook=repr)


async def startup(ctx: dict[str, Any]) -> None:
    """Build the parts of a worker that arq's command has started, and put them into its context."""
    hide_process()
    settings = configure_process(load())
    owner = nonce()
    mine = _start_guardian(owner)
    guardian_config(settings, redis_url(settings)).send(mine)
    link = GuardianLink(mine, lease_s=settings.worker.lease_s)
    deps = WorkerDeps(settings, queues=(), owner=owner, link=link)
    ctx.update(deps.context())
    await deps.start()


async def shutdown(ctx: dict[str, Any]) -> None:
    """Close what `startup` opened."""
    if "deps" in ctx:
        await ctx["deps"].close()


class ArqSettings:
    """The settings that arq reads."""

    functions: ClassVar = [run_turn, run_subagent, probe, ask_model, *FUNCTIONS]
    cron_jobs: ClassVar = list(CRON)
    queue_name = keys.queue("jobs")
    health_check_key = "arq:health-check"  # arq's own would look like a queue
    on_startup = startup
    on_shutdown = shutdown
    job_serializer = _encoder.encode
    job_deserializer = msgspec.msgpack.decode
    log_results = False
    # Set for arq's command alone: no worker of ours reads it
    redis_settings: ClassVar[RedisSettings]


def run(settings: Settings, *, queues: Sequence[str], owner: str, link: socket.socket, slot: int | None) -> None:
    """Serve these queues (() is all) until a SIGTERM drained them. Without a slot this is a spare:
    it starts as far as it can, and waits for the slot. Raises SettingsError."""
    loop = event_loop()
    asyncio.set_event_loop(loop)
    configure_process(settings)
    guardian = GuardianLink(link, lease_s=settings.worker.lease_s)
    deps = WorkerDeps(settings, queues=queues, owner=owner, link=guardian)

    async def start(ctx: dict[str, Any]) -> None:
        filled = slot
        if filled is None:
            await deps.warm_up()
            filled = await guardian.slot_to_fill()
            if filled is None:  # the guardian has ended, and nothing was ever served
                await deps.close()
                raise asyncio.CancelledError
        await deps.start(filled)

    ours = {"ctx": deps.context(), "on_startup": start, "handle_signals": False}
    if "jobs" not in deps.queues:
        ours["cron_jobs"] = ()  # it would queue what it never runs
    worker = LeaseWorker(**{**arq.worker.get_kwargs(ArqSettings), **ours})  # type: ignore[arg-type]
    loop.add_signal_handler(signal.SIGTERM, worker.handle_sig, signal.SIGTERM)
    # Ctrl-C in a terminal reaches the whole process group; the guardian decides what happens. The
    # signal has a handler and is not ignored: every process started here would inherit the latter.
    loop.add_signal_handler(signal.SIGINT, lambda: None)
    worker.run()


def _start_guardian(owner: str) -> socket.socket:
    """Start a guardian as our child, because no guardian started us. Return our end of its link."""
    mine, theirs = socket.socketpair()
    with theirs:
        fd = theirs.fileno()
        arguments = ["worker.process.guardian", owner, str(fd), str(os.getpid())]
        subprocess.Popen([sys.executable, "-m", *arguments], pass_fds=[fd])
    return mine
