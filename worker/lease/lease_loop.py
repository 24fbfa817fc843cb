"""The lease loop: take due work while there are free slots, keep what is running, give back what
cannot go on.

One `LeaseLoop` serves one queue. It knows nothing of turns: a `Runner` gets the `Lease` and ends it
itself by a commit or a release. No arq here.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Awaitable, Callable
from typing import Final, Protocol

from shared.backoff import full_jitter
from shared.clock import SYSTEM_CLOCK, Clock
from shared.errors import LeaseLost, RedisAway, TurnReleased, TurnStopped
from shared.log import bind_work, logger
from shared.metrics import LEASE_RENEW_LATE, REDIS_RECONNECTS, STALE_WRITES_REFUSED, TURN_TAKEOVERS
from shared.store.client.redis_client import RECONNECT_CAP_S, RECONNECT_FIRST_S
from shared.store.turns.queue import Claim, LeaseQueue
from shared.tasks import cancel_all
from shared.tracing import continued
from worker.lease.lease import Lease, NoStandIn, ProxyRenewal

RENEWALS_PER_LEASE: Final = 5

YIELDS_BEFORE_WAIT: Final = 3
"""Of the event loop, before the next wait is sent: what was just taken begins first, and what ends
at once is sent."""

log = logger("leases")


Runner = Callable[[Lease], Awaitable[None]]


class Acquire(Protocol):
    """`LeaseQueue.acquire` or `acquire_next`."""

    async def __call__(self, count: int, *, most: int, grace: bool, subagents: int) -> list[Claim]: ...


def _batch_size(free: int) -> int:
    return max(1, free // 8)


class LeaseLoop:
    """Takes work from one queue and keeps its leases. `slots` is how much runs at once; of
    subagents no more than three quarters of it, at least one: they may take a quarter of an hour,
    and other jobs do not wait behind them."""

    def __init__(
        self,
        queue: LeaseQueue,
        *,
        slots: int,
        run: Runner,
        clock: Clock = SYSTEM_CLOCK,
        proxy: ProxyRenewal | None = None,
    ) -> None:
        if slots < 1:
            raise ValueError(f"a lease loop needs at least one slot, not {slots!r}")
        self.queue = queue
        self.slots = slots
        self.subagent_slots = max(1, slots * 3 // 4)
        self.connected = asyncio.Event()
        """Set while Redis answers."""
        self._runner = run
        self._clock = clock
        self._proxy = proxy or NoStandIn()
        self._leases: set[Lease] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._freed = asyncio.Event()
        self._busy = asyncio.Event()
        self._draining = False
        self._waits = self._waits_for_subagent_slot = False
        self._ending: asyncio.Task[None] | None = None
        self._reclaim_at = math.inf
        self._grace_until = clock.monotonic() + queue.lease_s / 2

    @property
    def draining(self) -> bool:
        """Whether nothing more is taken."""
        return self._draining

    @property
    def running(self) -> int:
        """How many leases are under work."""
        return len(self._leases)

    @property
    def _free_subagent_slots(self) -> int:
        """How many subagents more may run."""
        return max(0, self.subagent_slots - sum(lease.claim.subagent is not None for lease in self._leases))

    def find(self, member: str) -> list[Lease]:
        """The leases on `member` under work here: a second one when an older, lost one has not
        ended yet."""
        return [lease for lease in self._leases if lease.claim.member == member]

    async def run(self) -> None:
        """Take and renew until `drain`. Redis may come and go meanwhile."""
        renewing = asyncio.create_task(self._keep_renewing())
        working = asyncio.create_task(self._claim_until_drained())
        try:
            await asyncio.wait({renewing, working}, return_when=asyncio.FIRST_COMPLETED)
            # Renewing ends only by a bug, and a worker that cannot renew must not go on taking.
            await (renewing if renewing.done() else working)
        finally:
            await cancel_all([renewing, working, *([self._ending] if self._ending else [])])
            await self.queue.close()

    async def run_claimed(self, claim: Claim) -> None:
        """Work on one claim that somebody else took, and keep its lease; returns when it has
        ended."""
        self._start(claim, self._clock.monotonic())
        renewing = asyncio.create_task(self._keep_renewing())
        try:
            while self._tasks:
                await asyncio.wait(self._tasks)
        finally:
            await cancel_all([renewing])
            await self.queue.close()

    async def claim_once(self) -> bool:
        """Fill some of the free slots; whether there was work."""
        free = self.slots - len(self._leases)
        return free > 0 and await self._claim(self.queue.acquire, free) > 0

    async def _claim(self, acquire: Acquire, free: int) -> int:
        """Take an eighth of the free slots, so that work spreads over workers, or more where much
        is due; how many.

        It is never more than a quarter of all: so the store finds the next ones while these begin.
        """
        sent, most = self._clock.monotonic(), min(free, max(1, self.slots // 4))
        claims = await acquire(
            _batch_size(free), most=most, grace=sent < self._grace_until, subagents=self._free_subagent_slots
        )
        self.connected.set()
        for claim in claims:
            self._start(claim, sent)
        return len(claims)

    async def renew_once(self) -> None:
        """Renew everything under work. Raises RedisAway."""
        leases = list(self._leases)
        if not leases:
            return
        sent = self._clock.monotonic()
        answers = await self.queue.renew([lease.claim for lease in leases])
        for lease, answer in zip(leases, answers, strict=True):
            if answer is None:
                lease.lose()
            else:
                lease.renewed(sent)
                if answer and lease.claim.turn is not None and answer == lease.claim.turn.n:
                    lease.interrupt(TurnStopped())

    def drain(self) -> None:
        """Take nothing more; what runs is given back at its next border (see `Lease.draining`).
        `run` then returns."""
        self._draining = True
        for lease in self._leases:
            lease.drain()
        self._freed.set()
        self._end_wait()

    def interrupt_all(self) -> None:
        """What is still running after the time to drain is given back in the middle."""
        for lease in list(self._leases):
            lease.interrupt(TurnReleased("drain"))

    def _start(self, claim: Claim, claimed_at: float) -> None:
        lease = Lease(claim, self.queue, claimed_at=claimed_at, clock=self._clock, proxy=self._proxy)
        if self._draining:
            lease.drain()
        self._leases.add(lease)
        self._busy.set()
        if claim.owner_lost:
            TURN_TAKEOVERS.labels("lapsed").inc()
        elif (work := claim.turn or claim.subagent) is not None and work.crashes:
            TURN_TAKEOVERS.labels("crash").inc()
        task = asyncio.create_task(self._work(lease), name=claim.member)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _work(self, lease: Lease) -> None:
        turn = lease.claim.turn
        session, n, attempt = (lease.claim.session, turn.n, turn.attempt) if turn else (None, None, None)
        if lease.claim.subagent is not None:
            attempt = lease.claim.subagent.attempt
        with continued(lease.claim.traceparent) as trace:
            trace_id = trace.trace_id if trace else None
            with bind_work(session=session, turn=n, attempt=attempt, worker=lease.claim.owner[:12], trace_id=trace_id):
                try:
                    await self._runner(lease)
                except LeaseLost:
                    STALE_WRITES_REFUSED.inc()
                    log.warning("lease lost")
                except RedisAway:
                    log.warning("redis away", doing="ending a piece of work")
                except Exception:
                    log.exception("runner failed")
                    with contextlib.suppress(LeaseLost, RedisAway):
                        await self.queue.release(lease.claim, delay_s=5, count="errors")
                finally:
                    self._on_ended(lease)

    def _on_ended(self, lease: Lease) -> None:
        self._leases.discard(lease)
        if not self._leases:
            self._busy.clear()
        self._freed.set()
        if self._waits_for_subagent_slot and self._free_subagent_slots:
            self._end_wait()  # it does not hear of subagents; now it looks

    async def _claim_until_drained(self) -> None:
        await self._keep_claiming()
        while self._tasks:
            await asyncio.wait(self._tasks)

    async def _keep_claiming(self) -> None:
        waits = full_jitter(RECONNECT_FIRST_S, RECONNECT_CAP_S)
        away, may_be_more = False, True
        while not self._draining:
            try:
                if away:
                    await self._on_reconnect()
                    away, may_be_more, waits = False, True, full_jitter(RECONNECT_FIRST_S, RECONNECT_CAP_S)
                elif self._clock.monotonic() >= self._reclaim_at:
                    await self._reclaim()
                free = self.slots - len(self._leases)
                if free <= 0:
                    self._freed.clear()
                    await self._freed.wait()
                elif may_be_more:
                    may_be_more = await self._claim(self.queue.acquire, free) >= _batch_size(free)
                else:
                    for _ in range(YIELDS_BEFORE_WAIT):
                        await asyncio.sleep(0)
                    may_be_more = await self._claim_next()
            except RedisAway as exc:
                if not away:
                    log.warning("redis away", queue=self.queue.name, error=str(exc))
                    REDIS_RECONNECTS.inc()
                away = True
                self.connected.clear()
                await asyncio.sleep(next(waits))

    async def _claim_next(self) -> bool:
        """Wait for work and take it; whether there may be more."""
        if self.draining:
            return False
        free = self.slots - len(self._leases)
        self._waits, self._waits_for_subagent_slot = True, not self._free_subagent_slots
        try:
            return await self._claim(self.queue.acquire_next, free) >= _batch_size(free)
        finally:
            self._waits = self._waits_for_subagent_slot = False

    def _end_wait(self) -> None:
        """Have `_take_next` look now; it cannot be cancelled, for it may have taken something
        already."""
        if self._waits and self._ending is None:
            self._ending = asyncio.create_task(self._send_end_wait())

    async def _send_end_wait(self) -> None:
        try:
            await self.queue.end_wait()
        except RedisAway:
            pass  # then the wait ends by itself
        finally:
            self._ending = None

    async def _on_reconnect(self) -> None:
        given_back = await self._reclaim()
        log.info("redis back", queue=self.queue.name, given_back=given_back)
        now = self._clock.monotonic()
        # Owners of lapsed entries reconnect at this moment, too: let them renew first.
        self._grace_until = now + self.queue.lease_s / 2
        # A wait of ours that the server has not seen the end of may take something until its time
        # is over.
        self._reclaim_at = now + 2 * self.queue.wait_s

    async def _reclaim(self) -> int:
        """Give back what was taken for us and never arrived; how many."""
        self._reclaim_at = math.inf
        return await self.queue.release_unknown([lease.claim for lease in self._leases])

    async def _keep_renewing(self) -> None:
        every_s = self.queue.lease_s / RENEWALS_PER_LEASE
        while True:
            await self._busy.wait()
            await asyncio.sleep(every_s)
            waits = full_jitter(RECONNECT_FIRST_S, RECONNECT_CAP_S)
            started = self._clock.monotonic()
            while self._leases:
                try:
                    await self.renew_once()
                    self.connected.set()
                    break
                except RedisAway:
                    self.connected.clear()
                    await asyncio.sleep(next(waits))
            if self._clock.monotonic() - started > self.queue.lease_s / 2 - every_s:
                LEASE_RENEW_LATE.inc()
