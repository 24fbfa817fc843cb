"""Isolation: a process of its own for work that was in flight in two crashes.

A crash is counted for everything in flight on the worker, so a count alone cannot identify the
poison. If the child (`worker/process/quarantine_child.py`) dies and its parent lives, its work is
the poison. Bystanders come out answered.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
import sys
from typing import Final, Literal, get_args

import msgspec

from shared.errors import TurnReleased
from shared.log import logger
from shared.metrics import QUARANTINES
from worker.attempt import child_counters
from worker.lease.lease import Lease

AFTER_CRASHES: Final = 2
"""Crashes of workers after which work is isolated."""

MAX_CHILDREN: Final = 4
"""Most children of one worker at once. Each has to start a process; many at once would all start
too slowly."""

TICK_S: Final = 0.5
SILENCE_S: Final = 20.0
"""Seconds without a sign of its event loop after which a child is killed."""

ALIVE, ENDED = b".", b"E"
"""Sent by the child every TICK_S; sent last, followed by the child's counters."""

Verdict = Literal["ended", "guilty", "unproven"]
"""The child ended the work; the work killed the child (it is the poison); the child died before the
work began. Values of a metric's label."""

for _verdict in get_args(Verdict):
    QUARANTINES.labels(_verdict)  # from 0 on, so that the first one shows as a rise

log = logger("quarantine")


class Quarantine:
    """Runs leased work in children, one child for each, at most `max_children` at once."""

    def __init__(self, *, max_children: int = MAX_CHILDREN, silence_s: float = SILENCE_S) -> None:
        self._free_slots = max_children
        self._silence_s = silence_s

    async def run(self, lease: Lease) -> Verdict:
        """Run the work of `lease` isolated, to its end. The caller keeps the lease; a drain is
        forwarded to the child. Cancelling kills the child.

        The child's counters are added to ours, because nothing scrapes the child;
        `lease.counted_by_child` says so. Raises TurnReleased when no child may be started: work
        that waited here would be in flight in the next crash of this worker, and be blamed for it.
        """
        if self._free_slots == 0:
            raise TurnReleased("quarantine", delay_s=random.uniform(0.5, 1.5))
        self._free_slots -= 1
        try:
            await lease.queue.mark_isolated(lease.claim)
            return await self._run_child(lease)
        finally:
            self._free_slots += 1

    async def _run_child(self, lease: Lease) -> Verdict:
        mine, theirs = socket.socketpair()
        mine.setblocking(False)
        try:
            with theirs:
                child = await asyncio.create_subprocess_exec(
                    sys.executable,
                    "-m",
                    "worker.process.quarantine_child",
                    str(theirs.fileno()),
                    pass_fds=[theirs.fileno()],
                )
            log.warning("quarantined", child=child.pid)
            try:
                return await self._supervise(lease, child, mine)
            finally:
                if child.returncode is None:
                    child.kill()
                log.warning("quarantine over", child=child.pid, code=await child.wait())
        finally:
            mine.close()

    async def _supervise(self, lease: Lease, child: asyncio.subprocess.Process, link: socket.socket) -> Verdict:
        draining = asyncio.create_task(_forward_drain(lease, child))
        output = bytearray()
        try:
            with contextlib.suppress(TimeoutError, OSError):
                await self._read_output(lease, link, output)
            alive, ended, report = bytes(output).partition(ENDED)
            if ended:
                lease.counted_by_child = child_counters.merge_counters(report)
                QUARANTINES.labels("ended").inc()
            if child.returncode is None:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(TICK_S):
                        await child.wait()
            if child.returncode is None:  # its event loop hangs
                child.kill()
            code = await child.wait()
        finally:
            draining.cancel()
        if ended:
            return "ended"  # the work is over, however the interpreter exits
        verdict: Verdict = "ended" if code == 0 else "guilty" if alive else "unproven"
        QUARANTINES.labels(verdict).inc()
        return verdict

    async def _read_output(self, lease: Lease, link: socket.socket, output: bytearray) -> None:
        """Send the claim, then read the child's output until it ends."""
        loop = asyncio.get_running_loop()
        record = msgspec.msgpack.encode(lease.claim)
        await loop.sock_sendall(link, len(record).to_bytes(4) + record)
        more = ALIVE
        while more and len(output) < child_counters.LIMIT_BYTES:
            async with asyncio.timeout(self._silence_s):
                more = await loop.sock_recv(link, 4096)
            output += more


async def _forward_drain(lease: Lease, child: asyncio.subprocess.Process) -> None:
    await lease.until_draining()
    with contextlib.suppress(ProcessLookupError):
        child.terminate()
