"""The lease loops of a process, and the signals that end them."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Sequence
from typing import Final

from shared.log import logger
from worker.lease.lease_loop import LeaseLoop

CUT_BEFORE_END_S: Final = 5.0

log = logger("worker")


class LoopGroup:
    """Runs lease loops until signals end them.

    A first signal drains: nothing new is claimed, work is released at its next border, and what
    still runs 5 s before `drain_s` is over is interrupted. A second signal interrupts at once. If
    even that does not end the loops, `give_up` is called, which has to cancel the task that waits
    for `run`.
    """

    def __init__(self, *, drain_s: Callable[[], float], give_up: Callable[[], object]) -> None:
        self._drain_s = drain_s
        self._give_up = give_up
        self._loops: Sequence[LeaseLoop] = ()
        self._draining: asyncio.Task[None] | None = None

    async def run(self, loops: Sequence[LeaseLoop]) -> None:
        """Run `loops` until they are drained. A signal that arrived earlier counts."""
        self._loops = loops
        if self._draining is not None:
            for loop in loops:
                loop.drain()
        running = [asyncio.create_task(loop.run()) for loop in loops]
        try:
            await asyncio.gather(*running)
        finally:
            if self._draining is not None:
                self._draining.cancel()

    def on_signal(self, signum: int) -> None:
        """Drain; on a second signal interrupt what is still running."""
        if self._draining is None:
            log.info("draining", signal=signal.Signals(signum).name, running=self._running())
            self._draining = asyncio.get_running_loop().create_task(self._drain())
        else:
            self._cut()

    async def _drain(self) -> None:
        for loop in self._loops:
            loop.drain()
        await asyncio.sleep(max(0.0, self._drain_s() - CUT_BEFORE_END_S))
        log.warning("drain cut", running=self._running())
        self._cut()
        await asyncio.sleep(CUT_BEFORE_END_S)
        log.warning("drain given up", running=self._running())
        self._give_up()

    def _cut(self) -> None:
        for loop in self._loops:
            loop.interrupt_all()

    def _running(self) -> int:
        return sum(loop.running for loop in self._loops)
