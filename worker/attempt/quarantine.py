"""Isolation: a process of its own for work that was in flight in two crashes. A crash is counted
for everything in flight on the worker, so a count alone cannot identify the poison. If the child
(`worker/process/quarantine_child.py`) dies and its parent lives, its work is the poison. Bystanders
come out answered. The child's counters are added to ours, because nothing scrapes the child."""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
import sys
from asyncio.subprocess import Process
from typing import Final, Literal, get_args

import msgspec

from shared import metrics
from shared.errors import TurnReleased
from shared.log import logger
from worker.lease.lease import Lease

AFTER_CRASHES: Final = 2  # crashes of workers after which work is isolated
MAX_CHILDREN: Final = 4
"""Most children of one worker at once. Too many processes would all start too slowly."""

TICK_S: Final = 0.5
SILENCE_S: Final = 20.0  # without a sign of its event loop, after which a child is killed

ALIVE, ENDED = b".", b"E"  # sent by the child every TICK_S; sent last, before its counters
REPORT_LIMIT_BYTES: Final = 256 * 1024

_TIMES: Final = {
    "answer": metrics.ANSWER_SECONDS,
    "first_token": metrics.FIRST_TOKEN_SECONDS,
    "model": metrics.MODEL_SECONDS,
    "tool": metrics.TOOL_SECONDS,
}
"""Histograms of what happens inside a turn. The parent measures the turn itself and its wait."""

Verdict = Literal["ended", "guilty", "unproven"]
"""The child ended the work; the work killed the child (it is the poison); the child died before the
work began. Values of a metric's label."""

for _verdict in get_args(Verdict):
    metrics.QUARANTINES.labels(_verdict)  # from 0 on, so that the first one shows as a rise

log = logger("quarantine")


class Quarantine:
    """Runs leased work in children, one child for each, at most `max_children` at once."""

    def __init__(self, *, max_children: int = MAX_CHILDREN) -> None:
        self._free_slots = max_children

    async def run(self, lease: Lease) -> Verdict:
        """Run the work of `lease` isolated, to its end. The caller keeps the lease; a drain is
        forwarded to the child. Cancelling kills the child. `lease.counted_by_child` says that the
        child's counters were added to ours. Raises TurnReleased when no child may be started: work
        that waited here would be in flight in the next crash of this worker, and be blamed for
        it."""
        if self._free_slots == 0:
            raise TurnReleased("quarantine", delay_s=random.uniform(0.5, 1.5))
        self._free_slots -= 1
        try:
            await lease.queue.mark_isolated(lease.claim)
            mine, theirs = socket.socketpair()
            mine.setblocking(False)
            with mine:
                with theirs:
                    fd = theirs.fileno()
                    command = [sys.executable, "-m", "worker.process.quarantine_child", str(fd)]
                    child = await asyncio.create_subprocess_exec(*command, pass_fds=[fd])
                log.warning("quarantined", child=child.pid)
                try:
                    return await _supervise(lease, child, mine)
                finally:
                    if child.returncode is None:
                        child.kill()
                    log.warning("quarantine over", child=child.pid, code=await child.wait())
        finally:
            self._free_slots += 1


async def _supervise(lease: Lease, child: Process, link: socket.socket) -> Verdict:
    draining = asyncio.create_task(_forward_drain(lease, child))
    output = bytearray()
    try:
        with contextlib.suppress(TimeoutError, OSError):
            await _read_output(lease, link, output)
        alive, ended, report = bytes(output).partition(ENDED)
        if ended:
            lease.counted_by_child = merge_counters(report)
            metrics.QUARANTINES.labels("ended").inc()
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
    metrics.QUARANTINES.labels(verdict).inc()
    return verdict


async def _read_output(lease: Lease, link: socket.socket, output: bytearray) -> None:
    loop = asyncio.get_running_loop()
    record = msgspec.msgpack.encode(lease.claim)
    await loop.sock_sendall(link, len(record).to_bytes(4) + record)
    more = ALIVE
    while more and len(output) < REPORT_LIMIT_BYTES:
        async with asyncio.timeout(SILENCE_S):
            more = await loop.sock_recv(link, 4096)
        output += more


async def _forward_drain(lease: Lease, child: Process) -> None:
    await lease.until_draining()
    with contextlib.suppress(ProcessLookupError):
        child.terminate()


class ChildCounters(msgspec.Struct, frozen=True):
    """Values of counters, and number and sum in seconds of histograms, each by its labels."""

    counts: dict[str, list[tuple[tuple[str, ...], float]]]
    times: dict[str, list[tuple[tuple[str, ...], int, float]]]


def encode_counters() -> bytes:
    """Return everything that this process has counted, as bytes."""
    counts = {
        name: [(labels, value) for labels, value in metrics.totals(counter).items() if value]
        for name, counter in metrics.COUNTERS.items()
    }
    times = {
        name: [(labels, many, seconds) for labels, (many, seconds) in metrics.observed(histogram).items()]
        for name, histogram in _TIMES.items()
    }
    return msgspec.msgpack.encode(ChildCounters(counts, times))


def merge_counters(data: bytes) -> bool:
    """Add a child's counters to ours. Return False when they cannot be read. Numbers and sums are
    exact; of several times each is observed as their mean."""
    try:
        found = msgspec.msgpack.decode(data, type=ChildCounters)
    except msgspec.DecodeError:
        return False
    for name, counts in found.counts.items():
        for labels, value in counts:
            counter = metrics.COUNTERS[name]
            (counter.labels(*labels) if labels else counter).inc(value)
    for name, times in found.times.items():
        for labels, many, seconds in times:
            histogram = _TIMES[name]
            for _ in range(many):
                (histogram.labels(*labels) if labels else histogram).observe(seconds / many)
    return True
