"""A child of a quarantine. `python -m worker.process.quarantine_child FD,OWNER QUEUE` runs claims
of the worker OWNER that come over FD, until that is closed."""

from __future__ import annotations

import asyncio
import contextlib
import resource
import signal
import socket
import sys
from collections.abc import Iterable
from typing import Any

import msgspec

from shared.confinement.own_process import hide_process
from shared.confinement.processes import DEATH_SIGNAL, prctl
from shared.settings import Settings, load
from shared.store.turns.queue import Claim, LeaseQueue
from shared.tasks import cancel_all, event_within
from worker.attempt.child_counters import CounterReader
from worker.attempt.quarantine import TICK_S, ChildReport
from worker.lease.lease import Lease
from worker.lease.lease_loop import LeaseLoop
from worker.process.loop_group import LoopGroup
from worker.process.worker_deps import WorkerDeps
from worker.process.worker_process import configure_process, event_loop


class FedQueue(LeaseQueue):
    """A queue whose leases another process acquires; it `feed`s the claims."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._fed: list[Claim] = []
        self._ready = asyncio.Event()

    def feed(self, claim: Claim) -> None:
        """Hand a claim to the next `acquire`."""
        self._fed.append(claim)
        self._ready.set()

    async def acquire(self, count: int, **_: Any) -> list[Claim]:
        """Return what was fed, all of it: the parent has a slot for each."""
        fed = self._fed
        self._fed = []
        self._ready.clear()
        return fed

    async def acquire_next(self, count: int, **_: Any) -> list[Claim]:
        """Return what was fed as soon as there is something, or nothing after `wait_s`."""
        await event_within(self._ready, self.wait_s)
        return await self.acquire(count)

    async def end_wait(self) -> None:
        """Make our own waiting `acquire_next` return."""
        self._ready.set()

    async def release_unknown(self, running: Iterable[Claim]) -> int:
        """Release nothing: the other leases of this owner are its own affair."""
        return 0


def main() -> int:
    """Run claims until the link is closed, and exit with 0, however they ended."""
    fd, owner = sys.argv[1].split(",")
    if sys.platform == "linux":
        # The kernel kills this process with its parent. Elsewhere lease and fence end the work.
        with contextlib.suppress(OSError):
            prctl(DEATH_SIGNAL, signal.SIGKILL)
    hide_process()
    settings = configure_process(load())
    limit = settings.worker.quarantine_mb * 1024 * 1024
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    with asyncio.Runner(loop_factory=event_loop) as runner:
        runner.run(_serve(settings, sys.argv[2], owner, socket.socket(fileno=int(fd))))
    return 0


async def _serve(settings: Settings, name: str, owner: str, link: socket.socket) -> None:
    reader, writer = await asyncio.open_unix_connection(sock=link)
    loop = asyncio.get_running_loop()
    worker = settings.worker
    counters = CounterReader()
    deps = WorkerDeps(settings, queues=[name], owner=owner, link=None, isolated=True)

    def report(sign: ChildReport) -> None:
        record = msgspec.msgpack.encode(sign)
        writer.write(len(record).to_bytes(4) + record)

    async def run(lease: Lease) -> None:
        fence = lease.claim.fence
        report(ChildReport(began=fence))
        try:
            await deps.run_work(lease)
        finally:
            report(ChildReport(ended=fence, counters=counters.read()))

    async def tick() -> None:
        while True:
            report(ChildReport())
            await asyncio.sleep(TICK_S)

    async def receive() -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, OSError):
            while True:
                size = int.from_bytes(await reader.readexactly(4))
                queue.feed(msgspec.msgpack.decode(await reader.readexactly(size), type=Claim))
        group.on_signal(signal.SIGTERM)  # the parent has closed the link

    queue = FedQueue(deps.client, name, owner=owner, lease_s=worker.lease_s)
    leases = LeaseLoop(queue, slots=max(worker.turns, worker.jobs), run=run)
    group = LoopGroup(drain_s=lambda: worker.drain_s, give_up=lambda: serving.cancel())
    loop.add_signal_handler(signal.SIGTERM, group.on_signal, signal.SIGTERM)
    others = [loop.create_task(tick()), loop.create_task(receive())]
    serving = loop.create_task(deps.run_isolated(leases, group))
    try:
        with contextlib.suppress(asyncio.CancelledError):  # the drain was given up
            await serving
    finally:
        await cancel_all(others)
        writer.close()


if __name__ == "__main__":
    sys.exit(main())
