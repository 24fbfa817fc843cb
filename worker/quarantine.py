"""A process of its own for one turn that was under work in two crashes already.

If the child dies and its parent lives, that turn is what kills: it is convicted, and only it. A turn that merely stood
beside a poisonous one comes out answered. `python -m worker.quarantine FD` is the child.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import resource
import signal
import socket
import sys
from typing import Final, Literal

import msgspec

from shared.log import logger
from shared.settings import Settings, load
from shared.store.queue import Claim
from worker.lease import Lease

AFTER_CRASHES: Final = 2
"""So many workers die beside others before a turn is put apart."""

TICK_S: Final = 0.5
SILENCE_S: Final = 20.0
"""A child whose event loop does not turn for so long is killed."""

FRAME_LIMIT_BYTES: Final = 64 * 1024 * 1024
_PR_SET_PDEATHSIG: Final = 1
_ALIVE, _ENDED = b".", b"E"

Verdict = Literal["ended", "guilty", "unproven"]
"""The turn was ended by the child; it killed the child; the child died before the turn began."""

log = logger("quarantine")


class Quarantine:
    """Runs leased turns in children, one child a turn."""

    def __init__(self, *, silence_s: float = SILENCE_S) -> None:
        self._silence_s = silence_s

    async def run(self, lease: Lease) -> Verdict:
        """Run the turn of `lease` apart, to its end. The lease must be kept meanwhile; a drain is passed on.

        Cancelled, it kills the child.
        """
        mine, theirs = socket.socketpair()
        mine.setblocking(False)
        try:
            with theirs:
                child = await asyncio.create_subprocess_exec(
                    sys.executable, "-m", "worker.quarantine", str(theirs.fileno()), pass_fds=[theirs.fileno()]
                )
            log.warning("quarantined", child=child.pid)
            try:
                return await self._watch(lease, child, mine)
            finally:
                if child.returncode is None:
                    child.kill()
                log.warning("quarantine over", child=child.pid, code=await child.wait())
        finally:
            mine.close()

    async def _watch(self, lease: Lease, child: asyncio.subprocess.Process, link: socket.socket) -> Verdict:
        draining = asyncio.create_task(_pass_drain_on(lease, child))
        heard = b""
        try:
            loop = asyncio.get_running_loop()
            with contextlib.suppress(TimeoutError, OSError):
                record = msgspec.msgpack.encode(lease.claim)
                await loop.sock_sendall(link, len(record).to_bytes(4) + record)
                while True:
                    async with asyncio.timeout(self._silence_s):
                        more = await loop.sock_recv(link, 4096)
                    if not more:
                        break
                    heard = more
                    if heard.endswith(_ENDED):
                        break
            if child.returncode is None:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(TICK_S):
                        await child.wait()
            if child.returncode is None:  # it is silent
                child.kill()
            code = await child.wait()
        finally:
            draining.cancel()
        if code == 0 or heard.endswith(_ENDED):
            return "ended"  # however long its interpreter takes to leave
        return "guilty" if heard else "unproven"


async def _pass_drain_on(lease: Lease, child: asyncio.subprocess.Process) -> None:
    await lease.until_draining()
    with contextlib.suppress(ProcessLookupError):
        child.terminate()


def main() -> int:
    """The child: take the claim from the parent, run its turn, and leave with 0, however the turn ended."""
    from worker.main import event_loop, settings_of_process

    link = socket.socket(fileno=int(sys.argv[1]))
    _die_with_parent()
    settings = settings_of_process(load())
    _limit_memory(settings)
    size = int.from_bytes(_read(link, 4))
    if not 0 < size <= FRAME_LIMIT_BYTES:
        return 3
    claim = msgspec.msgpack.decode(_read(link, size), type=Claim)
    link.setblocking(False)
    with asyncio.Runner(loop_factory=event_loop) as runner:
        runner.run(_run(settings, claim, link))
        with contextlib.suppress(OSError):
            link.send(_ENDED)
    return 0


async def _run(settings: Settings, claim: Claim, link: socket.socket) -> None:
    from worker.deps import WorkerDeps

    queue = "turns" if claim.child is None else "jobs"
    deps = WorkerDeps(settings, queues=[queue], owner=claim.owner, link=None, apart=True)
    ticking = asyncio.create_task(_tick(link))
    try:
        await deps.run_apart(claim)
    finally:
        ticking.cancel()


async def _tick(link: socket.socket) -> None:
    while True:
        with contextlib.suppress(OSError):
            link.send(_ALIVE)
        await asyncio.sleep(TICK_S)


def _read(link: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        piece = link.recv(size - len(data))
        if not piece:
            os._exit(4)  # the parent is gone before the work began
        data += piece
    return data


def _die_with_parent() -> None:
    """On Linux the kernel sees to it; elsewhere the turn's lease and fence do."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _limit_memory(settings: Settings) -> None:
    limit = settings.worker.quarantine_mb * 1024 * 1024
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))


if __name__ == "__main__":
    sys.exit(main())
