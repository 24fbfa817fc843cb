"""The child of a quarantine. `python -m worker.process.quarantine_child FD` runs the one claim that
its parent sends over FD."""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import signal
import socket
import sys
from typing import Final

import msgspec

from shared.settings import Settings, load
from shared.store.turns.queue import Claim
from worker.attempt.quarantine import ALIVE, ENDED, TICK_S, encode_counters
from worker.process.worker_deps import WorkerDeps
from worker.process.worker_process import configure_process, event_loop
from worker.sandbox.processes import DEATH_SIGNAL, prctl

FRAME_LIMIT_BYTES: Final = 64 * 1024 * 1024
FINAL_REPORT_S: Final = 2.0


def main() -> int:
    """Receive the claim, run its work and exit with 0, however the work ended."""
    link = socket.socket(fileno=int(sys.argv[1]))
    if sys.platform == "linux":
        # The kernel kills this process with its parent. Elsewhere lease and fence end the work.
        with contextlib.suppress(OSError):
            prctl(DEATH_SIGNAL, signal.SIGKILL)
    settings = configure_process(load())
    limit = settings.worker.quarantine_mb * 1024 * 1024
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    size = int.from_bytes(_receive_exactly(link, 4))
    if not 0 < size <= FRAME_LIMIT_BYTES:
        return 3
    claim = msgspec.msgpack.decode(_receive_exactly(link, size), type=Claim)
    link.setblocking(False)
    with asyncio.Runner(loop_factory=event_loop) as runner:
        runner.run(_run_claim(settings, claim, link))
        with contextlib.suppress(OSError):
            link.settimeout(FINAL_REPORT_S)
            link.sendall(ENDED + encode_counters())
            link.shutdown(socket.SHUT_WR)
    return 0


async def _run_claim(settings: Settings, claim: Claim, link: socket.socket) -> None:
    queue = "turns" if claim.subagent is None else "jobs"
    deps = WorkerDeps(settings, queues=[queue], owner=claim.owner, link=None, isolated=True)
    ticking = asyncio.create_task(_send_ticks(link))
    try:
        await deps.run_isolated(claim)
    finally:
        ticking.cancel()


async def _send_ticks(link: socket.socket) -> None:
    while True:
        with contextlib.suppress(OSError):
            link.send(ALIVE)
        await asyncio.sleep(TICK_S)


def _receive_exactly(link: socket.socket, size: int) -> bytes:
    data = link.recv(size, socket.MSG_WAITALL)
    if len(data) < size:
        os._exit(4)  # the parent died before the work began
    return data


if __name__ == "__main__":
    sys.exit(main())
