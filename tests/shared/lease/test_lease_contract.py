"""The lease that every kind of work holds: turns, chat deliveries and listeners keep it in one way."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, Protocol

import pytest

from gateway.delivery.chat_lease import ChatLease, ChatLeaseKeeper
from gateway.platform.listening import keep_lock
from shared.errors import LeaseLost, RedisAway
from tests.helpers.clock import HandClock
from worker.lease.lease import Lease
from worker.lease.lease_loop import LeaseLoop

LEASE_S = 1.0
"""Short, so that a keeper which waits for a fifth of it makes its renewals at once."""


class Store:
    """The other side of a renewal: it is granted, refused or not answered, as the test says."""

    def __init__(self) -> None:
        self.granted = True
        self.unavailable = 0
        self.calls: list[float] = []

    def renew(self) -> bool:
        self.calls.append(asyncio.get_running_loop().time())
        if self.unavailable:
            self.unavailable -= 1
            raise RedisAway("no answer")
        return self.granted


class Bench(Protocol):
    """One lease of a kind, claimed at `clock.at`, and the task that keeps it."""

    clock: HandClock
    store: Store

    async def usable(self) -> bool: ...

    def keep(self) -> asyncio.Task[None]: ...


class TurnBench:
    def __init__(self, lease_s: float) -> None:
        self.clock, self.store = HandClock(), Store()

        async def renew(claims: list[Any], **_: object) -> list[int | None]:
            return [0 if self.store.renew() else None for _ in claims]

        async def close() -> None:
            pass

        queue: Any = SimpleNamespace(lease_s=lease_s, renew=renew, close=close, name="turns")
        self.loop = LeaseLoop(queue, slots=1, run=self.work, clock=self.clock)
        claim: Any = SimpleNamespace(member="m", owner="o", turn=None, child=None)
        self.lease = Lease(claim, queue, claimed_at=self.clock.at, clock=self.clock, proxy=None)
        self.loop._leases.add(self.lease)
        self.loop._busy.set()

    async def work(self, _lease: Lease) -> None:
        raise AssertionError("the test works on the lease itself")

    async def usable(self) -> bool:
        try:
            async with asyncio.timeout(0.01):
                await self.lease.allow()
        except (TimeoutError, LeaseLost):
            return False
        return True

    def keep(self) -> asyncio.Task[None]:
        return asyncio.create_task(self.loop._keep_renewing())


class DeliveryBench:
    def __init__(self, lease_s: float) -> None:
        self.clock, self.store = HandClock(), Store()

        async def renew(chats: list[Any]) -> set[str]:
            return set() if self.store.renew() else {chat.session for chat in chats}

        deliveries: Any = SimpleNamespace(lease_s=lease_s, renew=renew)
        chat: Any = SimpleNamespace(session="web:owner/a")
        self.lease = ChatLease(chat, acquired_at=self.clock.at, lease_s=lease_s, clock=self.clock)
        served: Any = (None, SimpleNamespace(cancel=lambda: None))
        self.keeper = ChatLeaseKeeper(deliveries, {self.lease: served}, clock=self.clock)

    async def usable(self) -> bool:
        return self.lease.safe_s > 0

    def keep(self) -> asyncio.Task[None]:
        return asyncio.create_task(self.keeper.keep_renewing())


class ListenerBench:
    """The keeper of a listener returns as soon as the lease cannot be used."""

    def __init__(self, lease_s: float) -> None:
        self.clock, self.store = HandClock(), Store()

        async def renew(_held: Any) -> bool:
            return self.store.renew()

        self.lock: Any = SimpleNamespace(lease_s=lease_s, renew=renew)
        self.claimed_at = self.clock.at
        self.task: asyncio.Task[None] | None = None

    async def usable(self) -> bool:
        if self.task is not None:
            return not self.task.done()
        keeping = asyncio.create_task(keep_lock(self.lock, SimpleNamespace(), self.claimed_at, self.clock))  # type: ignore[arg-type]
        done, _ = await asyncio.wait({keeping}, timeout=0.05)
        keeping.cancel()
        await asyncio.wait({keeping})
        return not done

    def keep(self) -> asyncio.Task[None]:
        self.task = asyncio.create_task(keep_lock(self.lock, SimpleNamespace(), self.claimed_at, self.clock))  # type: ignore[arg-type]
        return self.task


KINDS = pytest.mark.parametrize("kind", [TurnBench, DeliveryBench, ListenerBench], ids=["turn", "delivery", "listener"])


@pytest.fixture
async def bench(kind: Any) -> Any:
    return kind(LEASE_S)


async def end(keeping: asyncio.Task[None]) -> None:
    keeping.cancel()
    await asyncio.wait({keeping})


async def renewals(bench: Bench, many: int) -> None:
    async with asyncio.timeout(60):
        while len(bench.store.calls) < many:
            await asyncio.sleep(0.005)


@KINDS
async def test_a_lease_may_be_used_for_three_quarters_of_its_time(kind: Callable[[float], Bench]) -> None:
    """The last quarter is for clocks that differ and for writes that are on their way."""
    bench = kind(60)
    assert await bench.usable()
    bench.clock.at += 0.74 * 60
    assert await bench.usable()
    bench.clock.at += 0.02 * 60
    assert not await bench.usable()


@KINDS
async def test_a_lease_is_renewed_every_fifth_of_its_time(bench: Bench) -> None:
    """The first renewal waits as well: the claim has just been made."""
    began = asyncio.get_running_loop().time()
    keeping = bench.keep()
    await renewals(bench, 2)
    first, second = bench.store.calls[:2]
    assert first - began > 0.9 * LEASE_S / 5
    assert second - first > 0.9 * LEASE_S / 5
    await end(keeping)


@KINDS
async def test_a_granted_renewal_counts_from_when_it_was_sent(bench: Bench) -> None:
    keeping = bench.keep()
    bench.clock.at += 0.5 * LEASE_S
    await renewals(bench, 2)
    bench.clock.at += 0.7 * LEASE_S
    assert await bench.usable(), "1.2 leases after the claim, 0.7 after the renewal"
    await end(keeping)


@KINDS
async def test_a_refused_renewal_ends_the_use_at_once(bench: Bench) -> None:
    """Another owner has it."""
    bench.store.granted = False
    keeping = bench.keep()
    await renewals(bench, 1)
    await asyncio.sleep(0)
    assert not await bench.usable()
    await end(keeping)


@KINDS
async def test_a_renewal_without_answer_is_sent_again_and_does_not_count(bench: Bench) -> None:
    """While Redis is unavailable the time to the fence goes on."""
    bench.store.unavailable = 1
    keeping = bench.keep()
    await renewals(bench, 2)
    await asyncio.sleep(0)
    assert await bench.usable()
    await end(keeping)
