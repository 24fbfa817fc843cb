"""Isolation: child processes for suspects, which is work that was in flight in two crashes. A crash
is counted for everything in flight on the worker, so a count alone cannot identify the poison. All
suspects first run together in one child (`worker/process/quarantine_child.py`). If that child dies,
each runs in a third of the company the next time, and in the end alone. Work whose child dies while
nothing else is in it is the poison. Bystanders come out answered."""

from __future__ import annotations

import asyncio
import contextlib
import math
import signal
import socket
import sys
from asyncio.subprocess import Process
from collections.abc import Collection
from hashlib import blake2s
from pathlib import Path
from typing import Final, Literal, NamedTuple, get_args

import msgspec

from shared import metrics
from shared.log import logger
from shared.tasks import event_within
from worker.attempt.child_counters import ChildCounters, merge_counters
from worker.lease.lease import Lease

AFTER_CRASHES: Final = 2  # crashes after which work is a suspect
ALONE_AFTER: Final = 6  # crashes after which a suspect has a child of its own
PARTS: Final = 3  # children into which the suspects of a child that died are divided
PLACES: Final = 6  # children of one worker at once, besides the one of all new suspects

TICK_S: Final = 0.5
SILENT_TICKS: Final = 40  # without a sign of its event loop, after which a child is killed
START_TICKS: Final = 120  # the same before its first sign: a busy machine imports slowly
IDLE_TICKS: Final = 20  # without work, after which a child is closed
NO_CHILDREN_S: Final = 60.0  # after a child that did not start
CHILD_BYTES: Final = 96 * 2**20  # that the worker's memory cgroup must have left to start a child

Verdict = Literal["ended", "guilty", "split", "unproven"]
"""The child ended the work; the work killed the child (it is the poison); the child died with more
work in it, which is to be divided; the child was killed from outside (out of memory, an operator)
and proves nothing. Values of a metric's label, beside `in_place`: there was no child for it."""

for _verdict in (*get_args(Verdict), "in_place"):
    metrics.QUARANTINES.labels(_verdict)  # from 0 on, so that the first one shows as a rise

log = logger("quarantine")


class Company(NamedTuple):
    """Suspects that share a child: those with as many `crashes` and in the same `part` of them."""

    crashes: int
    part: str


NEW_SUSPECTS: Final = Company(AFTER_CRASHES, "")


def company_of(member: str, crashes: int) -> Company:
    """Return the company of a suspect. Each crash divides a company into PARTS, by digits of a
    hash, so that all workers divide it alike without talking to each other."""
    if crashes >= ALONE_AFTER:
        return Company(ALONE_AFTER, member)
    digits = int.from_bytes(blake2s(member.encode(), digest_size=8).digest())
    divided = crashes - AFTER_CRASHES
    return Company(crashes, str(digits % PARTS**divided) if divided > 0 else "")


def has_place(company: Company, running: Collection[Company]) -> bool:
    """Return whether work of `company` may run while those companies are `running`. New suspects
    never wait: most crashes prove nothing. Others do, rather than join a company that they could
    kill."""
    places = PLACES + (NEW_SUSPECTS in running)
    return company in running or company == NEW_SUSPECTS or len(running) < places


class ChildReport(msgspec.Struct, frozen=True):
    """A sign of a child's event loop: work that began or ended, and what was counted meanwhile."""

    began: tuple[str, str] | None = None
    ended: tuple[str, str] | None = None
    counters: ChildCounters | None = None


class SuspectChild:
    """A child process, our end of the link to it, and the work that it has not ended yet."""

    def __init__(self) -> None:
        self.runs: dict[tuple[str, str], asyncio.Future[Verdict | None]] = {}
        self.began: set[tuple[str, str]] = set()
        self.process: Process | None = None
        self.link, self.child_link = socket.socketpair()
        self.up = self.killed = self.draining = False
        self.silent_ticks = self.idle_ticks = 0
        self._sending = asyncio.Lock()
        self.link.setblocking(False)

    async def run(self, lease: Lease) -> Verdict | None:
        """Have the child run the work of `lease`; None if it did not begin there."""
        loop = asyncio.get_running_loop()
        record = msgspec.msgpack.encode(lease.claim)
        self.runs[lease.claim.fence] = run = asyncio.Future[Verdict | None]()
        draining = loop.create_task(lease.until_draining())
        draining.add_done_callback(lambda done: None if done.cancelled() else self.drain())
        try:
            with contextlib.suppress(OSError):  # it died: its end decides
                async with self._sending:
                    await loop.sock_sendall(self.link, len(record).to_bytes(4) + record)
            return await run
        finally:
            draining.cancel()
            self.runs.pop(lease.claim.fence, None)

    def drain(self) -> None:
        """Have the child release its work at the next boundary. A second signal would cut it."""
        if not self.draining and self.process is not None:
            with contextlib.suppress(ProcessLookupError):
                self.process.terminate()
        self.draining = True

    async def receive(self) -> None:
        """Receive reports until the child ends."""
        loop = asyncio.get_running_loop()
        buffer = bytearray()
        with contextlib.suppress(OSError):
            while data := await loop.sock_recv(self.link, 65536):
                self.up = True
                self.silent_ticks = 0
                buffer += data
                while len(buffer) >= (size := int.from_bytes(buffer[:4]) + 4):
                    report = msgspec.msgpack.decode(buffer[4:size], type=ChildReport)
                    del buffer[:size]
                    if report.began in self.runs:
                        self.began.add(report.began)
                    if report.counters is not None:
                        merge_counters(report.counters)
                    if report.ended in self.runs:
                        self.began.discard(report.ended)
                        self._resolve(report.ended, "ended")

    def end(self, code: int) -> None:
        """Judge the work that was left when the child ended with `code`. A SIGKILL that was not
        ours proves nothing: the kernel sends it when memory shared with the worker is used up."""
        verdict: Verdict = "guilty" if len(self.began) == 1 else "split"
        if code == 0 or (code == -signal.SIGKILL and not self.killed):
            verdict = "unproven"
        for fence in list(self.runs):
            self._resolve(fence, verdict if fence in self.began else None)

    def _resolve(self, fence: tuple[str, str], verdict: Verdict | None) -> None:
        run = self.runs.pop(fence)
        if not run.done():  # it is cancelled when the worker gives a drain up
            run.set_result(verdict)


class Quarantine:
    """Runs leased work of `queue` in children of the worker `owner`."""

    def __init__(self, queue: str, owner: str) -> None:
        self._queue = queue
        self._owner = owner
        self._children: dict[Company, SuspectChild] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._freed = asyncio.Event()
        self._closed_until = 0.0

    async def run(self, lease: Lease, crashes: int) -> Verdict | None:
        """Run the work of `lease` isolated, to its end or to that of the child. The caller keeps
        the lease; a drain is forwarded to the child. Return None when it must run in this process,
        because no child can be started. Raises like `interruptible` while it waits for a place."""
        company = company_of(lease.claim.member, crashes)
        verdict = None
        while verdict is None and not lease.draining:
            with lease.interruptible():
                while not (has_place(company, self._children) or lease.draining):
                    self._freed.clear()
                    await event_within(self._freed, 1.0)  # then look whether a drain has begun
            child = self._children.get(company) or self._start(company)
            if child is None:
                break
            verdict = await child.run(lease)
        metrics.QUARANTINES.labels(verdict or "in_place").inc()
        return verdict

    def _start(self, company: Company) -> SuspectChild | None:
        loop = asyncio.get_running_loop()
        if loop.time() < self._closed_until or memory_left() < CHILD_BYTES:
            return None
        child = self._children[company] = SuspectChild()
        self._tasks.add(task := loop.create_task(self._serve(company, child)))
        task.add_done_callback(self._tasks.discard)
        return child

    async def _serve(self, company: Company, child: SuspectChild) -> None:
        code = 0
        watching = asyncio.create_task(self._watch(company, child))
        try:
            with child.child_link as theirs:
                name = "worker.process.quarantine_child"
                fd = theirs.fileno()
                command = [sys.executable, "-m", name, f"{fd},{self._owner}", self._queue]
                child.process = process = await asyncio.create_subprocess_exec(*command, pass_fds=[fd])
            log.warning("quarantined", child=process.pid, crashes=company.crashes)
            if child.draining:  # before there was a process
                process.terminate()
            await child.receive()
            self._remove(company, child)
            code = await process.wait()
            log.warning("quarantine over", child=process.pid, code=code, left=len(child.runs))
        except OSError as exc:
            log.warning("quarantine not started", error=type(exc).__name__)
        finally:
            watching.cancel()
            self._remove(company, child)
            child.link.close()
            if not child.up:
                self._closed_until = asyncio.get_running_loop().time() + NO_CHILDREN_S
            child.end(code)

    async def _watch(self, company: Company, child: SuspectChild) -> None:
        """Kill a child that is silent; close one that is idle. Time is counted in our own ticks: a
        pause of the whole process group is only one of them."""
        while True:
            await asyncio.sleep(TICK_S)
            child.silent_ticks += 1
            child.idle_ticks = 0 if child.runs else child.idle_ticks + 1
            if child.silent_ticks > (SILENT_TICKS if child.up else START_TICKS) and child.process:
                child.killed = True
                child.process.kill()
            elif child.idle_ticks == IDLE_TICKS:
                self._remove(company, child)
                with contextlib.suppress(OSError):
                    child.link.shutdown(socket.SHUT_WR)  # the child reads the end, and ends

    def _remove(self, company: Company, child: SuspectChild) -> None:
        if self._children.get(company) is child:
            del self._children[company]
            self._freed.set()


def memory_left(root: Path = Path("/")) -> float:
    """Return how many bytes the memory cgroup of this process may still use; infinity where there
    is no limit or no cgroup (v2). A child shares the limit of its worker."""
    try:
        _, _, path = (root / "proc/self/cgroup").read_text().strip().rpartition(":")
        group = root / "sys/fs/cgroup" / path.lstrip("/")
        stat = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
        used = int((group / "memory.current").read_text()) - int(stat["inactive_file"])
        return int((group / "memory.max").read_text()) - used
    except (OSError, ValueError, KeyError):
        return math.inf
