"""The lease loops of a process, and what ends them or their work: signals and stop requests."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable, Sequence
from typing import Final

from shared.errors import ReplyError, TurnStopped
from shared.log import logger
from shared.store import keys
from shared.store.client.redis_client import RedisClient
from shared.store.delivery.fanout import Fanout
from worker.lease.lease_loop import LeaseLoop

CUT_BEFORE_END_S: Final = 5.0

log = logger("worker")


class LoopGroup:
    """Runs lease loops until signals end them. A first signal drains: nothing new is claimed, work
    is released at its next border, and what still runs 5 s before `drain_s` is over is interrupted.
    A second signal interrupts at once. If even that does not end the loops, `give_up` is called,
    which has to cancel the task that waits for `run`."""

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
        try:
            await asyncio.gather(*[asyncio.create_task(loop.run()) for loop in loops])
        finally:
            if self._draining is not None:
                self._draining.cancel()

    def on_signal(self, signum: int) -> None:
        """Drain; on a second signal interrupt what is still running."""
        if self._draining is None:
            log.info("draining", signal=signal.Signals(signum).name, running=self.running)
            self._draining = asyncio.get_running_loop().create_task(self._drain())
        else:
            self._cut()

    async def _drain(self) -> None:
        for loop in self._loops:
            loop.drain()
        await asyncio.sleep(max(0.0, self._drain_s() - CUT_BEFORE_END_S))
        log.warning("drain cut", running=self.running)
        self._cut()
        await asyncio.sleep(CUT_BEFORE_END_S)
        log.warning("drain given up", running=self.running)
        self._give_up()

    def _cut(self) -> None:
        for loop in self._loops:
            loop.interrupt_all()

    @property
    def running(self) -> int:
        """The number of leases under work."""
        return sum(loop.running for loop in self._loops)


def kill_process() -> None:
    """Die as by `kill -9`, without a last word."""
    os.kill(os.getpid(), signal.SIGKILL)


class StopListener:
    """Ends work in `loops` (a list that may still grow) when its chat sends a stop. `kill` is
    called when somebody wants to see the worker of a chat die; None where that is not offered."""

    def __init__(
        self, client: RedisClient, loops: Sequence[LeaseLoop], *, kill: Callable[[], object] | None = None
    ) -> None:
        self._loops = loops
        self._kill = kill
        self._control = Fanout(client, on_gap=self._renew_now)
        self.run = self._control.run

    async def subscribe(self) -> None:
        """Subscribe to the control channel. `run` then reads it until cancelled."""
        await self._control.subscribe(keys.CONTROL, self._on_stop)

    def _on_stop(self, data: bytes) -> None:
        """Interrupt the work that `data` names: `<member> <turn>`. A subagent has no turn number of
        its own, so its second word is ignored."""
        # A broken key of one chat may name anything; the others' turns are not to end with it.
        member, _, turn = data.decode(errors="replace").rpartition(" ")
        for loop in self._loops:
            for lease in loop.find(member):
                claim = lease.claim
                if turn == keys.KILL and self._kill is not None:
                    self._kill()
                if claim.subagent or (claim.turn and str(claim.turn.n) == turn):
                    lease.interrupt(TurnStopped())

    async def _renew_now(self) -> None:
        """Renew every lease: the answers carry the stops that we missed while not subscribed."""
        for loop in self._loops:
            with contextlib.suppress(ReplyError):  # a broken queue is no gap in the subscription
                await loop.renew_once()
