"""The lease loop: claim due work while slots are free, renew its leases, release it on a drain. One
`LeaseLoop` serves one queue. It knows nothing of turns: a `Runner` gets the `Lease` and ends it by
a commit or a release. It does not import arq."""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

from shared.backoff import Backoff
from shared.clock import SYSTEM_CLOCK, Clock
from shared.errors import LeaseLost, RedisAway, Refused, ReplyError, TurnReleased, TurnStopped
from shared.lease.keeper import keep_renewing
from shared.log import bind_work, logger
from shared.metrics import REDIS_RECONNECTS, STALE_WRITES_REFUSED, TURN_TAKEOVERS
from shared.store.turns.queue import Claim, LeaseQueue
from shared.tasks import cancel_all, close_all
from shared.tracing import continued
from worker.lease.lease import GuardianLink, Lease

BROKEN_AGAIN_S: Final = 60.0  # until work is tried again that stood on broken keys
FAILED_AGAIN_S: Final = 5.0
YIELDS_BEFORE_WAIT: Final = 3
"""Rounds of the event loop before the next wait is sent: work that was just claimed begins first,
and work that ends at once sends its commit first."""

log = logger("leases")


Runner = Callable[[Lease], Awaitable[None]]


class LeaseLoop:
    """Claims work from one queue and keeps its leases. At most `slots` run at once. Subagents get
    at most three quarters of the slots, at least one: they may take a quarter of an hour, and other
    jobs must not wait for them."""

    def __init__(
        self,
        queue: LeaseQueue,
        *,
        slots: int,
        run: Runner,
        clock: Clock = SYSTEM_CLOCK,
        proxy: GuardianLink | None = None,
    ) -> None:
        if slots < 1:
            raise ValueError(f"a lease loop needs at least one slot, not {slots!r}")
        self.queue = queue
        self.slots = slots
        self.subagent_slots = max(1, slots * 3 // 4)
        self.connected = asyncio.Event()  # set while Redis answers
        self._runner = run
        self._clock = clock
        self._proxy = proxy
        self.draining = False  # true when the loop has stopped claiming
        self._leases: set[Lease] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._freed = asyncio.Event()
        self._busy = asyncio.Event()
        self._waits = self._waits_for_subagent_slot = False
        self._ending: asyncio.Task[None] | None = None
        self._reclaim_at = math.inf
        self._grace_until = clock.monotonic() + queue.lease_s / 2

    @property
    def running(self) -> int:
        """The number of leases under work."""
        return len(self._leases)

    @property
    def _free_subagent_slots(self) -> int:
        subagents = sum(lease.claim.subagent is not None for lease in self._leases)
        return max(0, self.subagent_slots - subagents)

    def find(self, member: str) -> list[Lease]:
        """Return our leases on `member`: two when an older, lost one has not ended yet."""
        return [lease for lease in self._leases if lease.claim.member == member]

    async def run(self) -> None:
        """Claim and renew until `drain`. Outages of Redis do not end it."""
        renewing = asyncio.create_task(self._keep_renewing())
        working = asyncio.create_task(self._claim_until_drained())
        try:
            await asyncio.wait({renewing, working}, return_when=asyncio.FIRST_COMPLETED)
            # Renewing ends only by a bug. A worker that cannot renew must not claim any more.
            await (renewing if renewing.done() else working)
        finally:
            tasks = [renewing, working, *([self._ending] if self._ending else [])]
            await close_all(partial(cancel_all, tasks), self.queue.close)

    async def claim_once(self) -> bool:
        """Fill some of the free slots. Return whether there was work."""
        return len(self._leases) < self.slots and (await self._claim(self.queue.acquire))[0]

    async def _claim(self, acquire: Callable[..., Awaitable[list[Claim]]]) -> tuple[bool, bool]:
        """Claim work for an eighth of the free slots, so that due work spreads over the workers, or
        for more where much is due. Return whether there was some, and whether there may be more.
        Never for more than a quarter of all slots: the store then finds the next ones while these
        begin."""
        sent = self._clock.monotonic()
        free = self.slots - len(self._leases)
        count = max(1, free // 8)
        most = min(free, max(1, self.slots // 4))
        grace = sent < self._grace_until
        subagents = self._free_subagent_slots
        claims = await acquire(count, most=most, grace=grace, subagents=subagents)
        self.connected.set()
        for claim in claims:
            self._start(claim, sent)
        return bool(claims), len(claims) >= count

    async def renew_once(self) -> None:
        """Renew every lease under work. Raises RedisAway."""
        leases = list(self._leases)
        if not leases:
            return
        # The lease runs from when the renewal was sent: a slow answer must not make it longer.
        sent = self._clock.monotonic()
        answers = await self.queue.renew([lease.claim for lease in leases])
        for lease, answer in zip(leases, answers, strict=True):
            if answer is None:
                lease.lose()
            else:
                lease.renewed(sent)
                # The answer carries the number of a turn that a person stopped meanwhile.
                if answer and lease.claim.turn is not None and answer == lease.claim.turn.n:
                    lease.interrupt(TurnStopped())

    def drain(self) -> None:
        """Claim nothing more and release work at its next border. `run` then returns."""
        self.draining = True
        for lease in self._leases:
            lease.drain()
        self._freed.set()
        self._end_wait()

    def interrupt_all(self) -> None:
        """Release at once what is still running when the time to drain is over."""
        for lease in list(self._leases):
            lease.interrupt(TurnReleased("drain"))

    def _start(self, claim: Claim, claimed_at: float) -> None:
        lease = Lease(claim, self.queue, claimed_at=claimed_at, clock=self._clock, proxy=self._proxy)
        if self.draining:
            lease.drain()
            # A wait that the drain has not ended yet claimed it: nothing of it has begun.
            lease.interrupt(TurnReleased("drain"))
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
        claim = lease.claim
        turn = claim.turn
        work = claim.turn or claim.subagent
        session, n = (claim.session, turn.n) if turn else (None, None)
        owner = claim.owner[:12]
        attempt = work.attempt if work else None
        with continued(claim.traceparent) as trace:
            with bind_work(session, n, owner, attempt, trace.trace_id if trace else None):
                try:
                    await self._runner(lease)
                except LeaseLost:
                    STALE_WRITES_REFUSED.inc()
                    log.warning("lease lost")
                except RedisAway as exc:
                    if isinstance(exc, ReplyError):
                        log.error("entry broken", error=str(exc)[:200])
                        await self._release(claim, BROKEN_AGAIN_S)
                    else:
                        log.warning("redis away", doing="ending a piece of work")
                except Exception:
                    log.exception("runner failed")
                    await self._release(claim, FAILED_AGAIN_S)
                finally:
                    self._leases.discard(lease)
                    if not self._leases:
                        self._busy.clear()
                    self._freed.set()
                    if self._waits_for_subagent_slot and self._free_subagent_slots:
                        # The wait asked for no subagents. Now that one may begin, it must ask
                        # again.
                        self._end_wait()

    async def _release(self, claim: Claim, delay_s: float) -> None:
        with contextlib.suppress(LeaseLost, RedisAway, Refused):
            await self.queue.release(claim, delay_s=delay_s, count="errors")

    async def _claim_until_drained(self) -> None:
        backoff = Backoff()
        away = False
        may_be_more = True
        broken = False
        while not self.draining:
            try:
                if away:
                    await self._on_reconnect()
                    away = False
                    may_be_more = True
                    backoff.reset()
                elif self._clock.monotonic() >= self._reclaim_at:
                    await self._reclaim()
                if len(self._leases) >= self.slots:
                    self._freed.clear()
                    await self._freed.wait()
                elif may_be_more:
                    _, may_be_more = await self._claim(self.queue.acquire)
                else:
                    for _ in range(YIELDS_BEFORE_WAIT):
                        await asyncio.sleep(0)
                    may_be_more = await self._claim_next()
                if broken:
                    log.info("queue mended", queue=self.queue.name)
                    broken = False
                    backoff.reset()
            except Exception as exc:
                if not isinstance(exc, RedisAway) or isinstance(exc, ReplyError):
                    # The queue or its leases are of another type, say, or hold what cannot be read:
                    # an operator must mend them. What others wrote there must not end the process.
                    if not broken:
                        error = str(exc)[:200] if isinstance(exc, ReplyError) else type(exc).__name__
                        log.error("queue broken", queue=self.queue.name, error=error)
                    broken = True
                    await backoff.sleep()
                    continue
                if not away:
                    log.warning("redis away", queue=self.queue.name, error=str(exc))
                    REDIS_RECONNECTS.inc()
                away = True
                self.connected.clear()
                await backoff.sleep()
        while self._tasks:
            await asyncio.wait(self._tasks)

    async def _claim_next(self) -> bool:
        """Wait for work and claim it. Return whether there may be more."""
        if self.draining:
            return False
        self._waits = True
        self._waits_for_subagent_slot = not self._free_subagent_slots
        try:
            return (await self._claim(self.queue.acquire_next))[1]
        finally:
            self._waits = self._waits_for_subagent_slot = False

    def _end_wait(self) -> None:
        """End the wait through the store: cancelling it could lose a claim on its way."""

        async def send() -> None:
            try:
                await self.queue.end_wait()
            except RedisAway:
                pass  # the wait times out by itself
            finally:
                self._ending = None

        if self._waits and self._ending is None:
            self._ending = asyncio.create_task(send())

    async def _on_reconnect(self) -> None:
        given_back = await self._reclaim()
        log.info("redis back", queue=self.queue.name, given_back=given_back)
        now = self._clock.monotonic()
        # Owners of lapsed leases reconnect at this moment as well: let them renew first.
        self._grace_until = now + self.queue.lease_s / 2
        # The server may still hold a wait of ours whose connection broke. Until it times out it can
        # claim work whose answer never arrives, so reclaim once more afterwards.
        self._reclaim_at = now + 2 * self.queue.wait_s

    async def _reclaim(self) -> int:
        """Release what was claimed for us and never arrived. Return how many leases those were."""
        self._reclaim_at = math.inf
        return await self.queue.release_unknown([lease.claim for lease in self._leases])

    async def _keep_renewing(self) -> None:
        async def renew() -> None:
            try:
                await self.renew_once()
            except RedisAway:
                self.connected.clear()
                raise
            self.connected.set()

        lease_s = self.queue.lease_s
        clock = self._clock
        busy = self._busy
        await keep_renewing(renew, self._leases, lease_s=lease_s, clock=clock, busy=busy)
