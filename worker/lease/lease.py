"""A lease under work: it says whether the work may go on, and ends it when it may not. The
guardian, at the other end of a link, may renew it in our place."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable, Iterator
from typing import Final

from shared.clock import Clock
from shared.errors import LeaseLost, RedisAway, TurnReleased
from shared.lease.timing import safe_period_s
from shared.log import logger
from shared.store.client.redis_client import with_retries
from shared.store.turns.queue import Claim, LeaseQueue
from shared.tasks import AGAIN_S

CHECK_EVERY_S: Final = 0.25  # longest time between two checks for the safe period
TICKS_PER_LEASE: Final = 10  # from a worker to its guardian
COPIES_DELAY_S: Final = 5.0  # until a turn is tried again for which a replica was missing
STORE_PATIENCE_S: Final = 3600.0
"""Limit of the time that writes wait for Redis. While it is unavailable no other worker can claim
the turn; the fence in each write decides afterwards."""

log = logger("leases")


class GuardianLink:
    """Tells the guardian that the event loop runs; learns when it renewed in our place."""

    def __init__(self, link: socket.socket, *, lease_s: float) -> None:
        link.setblocking(False)
        self._link = link
        self._every_s = lease_s / TICKS_PER_LEASE
        self._renewed_at = 0.0
        self._guardian_gone = False

    def renewed_at(self) -> float:
        """Return the monotonic time at which the guardian last renewed our leases; 0 if never.
        Reads what the guardian has sent by now. After a pause of the event loop that is more than
        the last tick has seen."""
        try:
            while data := self._link.recv(4096):
                for line in data.splitlines():
                    word, _, value = line.partition(b" ")
                    if word == b"renewed":
                        self._renewed_at = float(value)
            # An empty read is the end of the stream.
            self._guardian_gone = True
        except BlockingIOError:
            pass
        except OSError:
            self._guardian_gone = True
        return self._renewed_at

    async def slot_to_fill(self) -> int | None:
        """Wait, as a spare, for the death of a worker; return its slot, None = the guardian
        died."""
        line = await asyncio.get_running_loop().sock_recv(self._link, 64)
        return int(line.split()[1]) if line else None

    async def run(self, orphaned: Callable[[], None]) -> None:
        """Tick until cancelled. Once the guardian is dead, call `orphaned` and return."""
        while True:
            try:
                self._link.send(b"tick\n")
            except BlockingIOError:
                pass  # a stopped guardian does not read; it will find enough ticks later
            except OSError:
                self._guardian_gone = True
            self.renewed_at()
            if self._guardian_gone:
                orphaned()
                return
            await asyncio.sleep(self._every_s)


class Lease:
    """A claim under work. `proxy` may renew it in our place."""

    def __init__(
        self, claim: Claim, queue: LeaseQueue, *, claimed_at: float, clock: Clock, proxy: GuardianLink | None
    ) -> None:
        self.claim = claim
        self.queue = queue
        self.draining = False  # true when the work must be released at its next boundary
        self._safe_s = safe_period_s(queue.lease_s)
        self._drained: asyncio.Event | None = None
        # When the claim was sent, not when it was answered: the lease runs from there.
        self._renewed_at = claimed_at
        self._clock = clock
        self._proxy = proxy
        self._renewed: asyncio.Event | None = None
        self._reason: Exception | None = None
        self._cancel: Callable[[], object] | None = None

    def drain(self) -> None:
        """Have the work released at its next border."""
        self.draining = True
        if self._drained is not None:
            self._drained.set()

    async def until_draining(self) -> None:
        """Return when the work is to be released."""
        if not self.draining:
            self._drained = self._drained or asyncio.Event()
            await self._drained.wait()

    @property
    def suspended(self) -> bool:
        """True when the lease is past its safe period: nothing new may be started or sent."""
        renewed_at = self._renewed_at
        if self._proxy is not None:
            renewed_at = max(renewed_at, self._proxy.renewed_at())
        return self._clock.monotonic() - renewed_at > self._safe_s

    async def allow(self) -> None:
        """Return when the work may go on, not while suspended. Raises the reason that ended it."""
        while True:
            if self._reason is not None:
                raise self._reason
            if not self.suspended:
                return
            if self._renewed is None or self._renewed.is_set():
                self._renewed = asyncio.Event()
            # A renewal or a reason wakes us: then both are checked again.
            await self._renewed.wait()

    async def until_suspended(self) -> None:
        """Return once `suspended` is true: effects that the store cannot fence must end then."""
        while not self.suspended:  # noqa: ASYNC110 (time passes; nothing happens that could set an event)
            await asyncio.sleep(min(CHECK_EVERY_S, self.queue.lease_s / 40))

    async def confirm(self, steps: int = 0) -> None:
        """Renew now, before an effect that must not happen twice. With `redis.copies`, return when
        that many servers have it, and `steps` of the ledger; raise TurnReleased while they do not.
        Raises LeaseLost, RedisAway."""
        sent_at = self._clock.monotonic()
        queue = self.queue
        if queue.copies == 1:
            [answer] = await queue.renew([self.claim], retry_for_s=queue.lease_s)
            have = answer
        else:
            try:
                have = await with_retries(lambda: queue.confirm(self.claim), queue.lease_s)
            except RedisAway as exc:
                # A lease that simply lapsed would be counted as a crash of this worker.
                log.warning("too few copies", error=str(exc), doing="trying the turn again later")
                raise TurnReleased("copies", delay_s=COPIES_DELAY_S) from exc
            if have is not None and have < steps:
                # The step was accepted by a primary that is gone. Whoever goes on writes it again.
                raise TurnReleased("lost tail")
        if have is None:
            raise self.lose()
        self.renewed(sent_at)

    async def secure(self, steps: int) -> None:
        """Return when a fail-over loses none of the `steps` in the ledger, as far as `redis.copies`
        promises it. Raises as `confirm`."""
        if self.queue.copies > 1:
            await self.confirm(steps)

    async def release(self, *, delay_s: float = 0.0, count: str = "") -> None:
        """Give the work back, see `LeaseQueue.release`. Waits long for Redis."""
        patience_s = STORE_PATIENCE_S
        await self.queue.release(self.claim, delay_s=delay_s, count=count, retry_for_s=patience_s)

    def renewed(self, sent_at: float) -> None:
        """Record that a renewal sent at `sent_at` (monotonic) was granted."""
        self._renewed_at = max(self._renewed_at, sent_at)
        self._wake_waiters()

    def lose(self) -> LeaseLost:
        """End the work: another owner has the lease. Return the error that says so."""
        lost = LeaseLost(f"the lease on {self.claim.member!r} is lost")
        self.interrupt(lost)
        return lost

    def interrupt(self, reason: Exception) -> None:
        """End the work inside `interruptible()` with `reason`. The first reason counts."""
        if self._reason is None:
            self._reason = reason
            self._wake_waiters()
            self._cancel_work()

    def _wake_waiters(self) -> None:
        if self._renewed is not None:
            self._renewed.set()

    @contextlib.contextmanager
    def cancelled_by(self, cancel: Callable[[], object]) -> Iterator[None]:
        """Let `interrupt` end the block by calling `cancel`, again until the block is left."""
        self._cancel = cancel
        if self._reason is not None:
            self._cancel_work()
        try:
            yield
        finally:
            self._cancel = None

    def _cancel_work(self) -> None:
        if self._cancel is not None:
            self._cancel()
            # One cancellation can be swallowed, see `shared.tasks`.
            asyncio.get_running_loop().call_later(AGAIN_S, self._cancel_work)

    def interruptible(self, limit_s: float | None = None) -> _Interruptible:
        """Return a context in which `interrupt` may end the work at any await, with its reason as
        the error. After `limit_s` the reason is a TimeoutError."""
        return _Interruptible(self, limit_s)


class _Interruptible:
    """The context of `interruptible`, a class: a generator takes thrice as long for each turn."""

    __slots__ = ("_lease", "_limit_s", "_task", "_timer")

    def __init__(self, lease: Lease, limit_s: float | None) -> None:
        self._lease = lease
        self._limit_s = limit_s
        self._timer: asyncio.TimerHandle | None = None

    def __enter__(self) -> _Interruptible:
        if self._lease._reason is not None:
            raise self._lease._reason
        task = asyncio.current_task()
        assert task is not None
        self._task = task
        self._lease._cancel = task.cancel
        if self._limit_s is not None:
            late = TimeoutError("it took too long")
            end = self._lease.interrupt
            self._timer = asyncio.get_running_loop().call_later(self._limit_s, end, late)
        return self

    def stop_timer(self) -> None:
        """Let the rest of the block take as long as it needs."""
        if self._timer is not None:
            self._timer.cancel()

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.stop_timer()
        reason = self._lease._reason
        self._lease._cancel = None
        if kind is not None and reason is not None and issubclass(kind, asyncio.CancelledError):
            # The cancellation was ours and becomes the reason. Its count must not stay on the task,
            # or the next `asyncio.timeout` in it would take its own for one from outside.
            while self._task.uncancel():
                pass
            raise reason from None
