"""The lease loop when slots are short: people before ticks, a fifth for those, and nobody waits for a poll."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Final

import pytest

from shared.errors import TurnReleased
from shared.ids import nonce
from shared.messages.live import TurnEvent
from shared.store import keys
from shared.store.client.redis_client import RedisClient
from shared.store.turns.inbox import Inbox
from shared.store.turns.queue import LeaseQueue
from shared.store.turns.turn_writes import Turns
from tests.helpers.build import reply
from tests.helpers.sharing import person, tick
from tests.helpers.wait import eventually
from worker.lease.lease import Lease
from worker.lease.lease_loop import LeaseLoop
from worker.process.worker_handle import WorkerLeases

LEASE_S: Final = 5.0


class SeldomLooks(LeaseQueue):
    """Only a wake-up makes it look: its poll is longer than a test."""

    WAIT_S = 120.0


class Loops:
    """Loops whose turns end when `gate` is open. `begun` are the chats in the order of their turns."""

    def __init__(self, client: RedisClient) -> None:
        self.begun: list[str] = []
        self.ended: list[str] = []
        self.gate = asyncio.Event()
        self.made: list[LeaseLoop] = []
        self._client = client
        self._tasks: list[asyncio.Task[None]] = []

    def start(self, *, slots: int, owner: str = "") -> LeaseLoop:
        queue = SeldomLooks(self._client, "turns", owner=owner or nonce(), lease_s=LEASE_S, person_share=0.5)
        loop = LeaseLoop(queue, slots=slots, run=self._run)
        self.made.append(loop)
        self._tasks.append(asyncio.create_task(loop.run()))
        return loop

    async def _run(self, lease: Lease) -> None:
        claim = lease.claim
        assert claim.turn is not None
        self.begun.append(claim.session.removeprefix("web:"))
        try:
            with lease.interruptible():
                await self.gate.wait()
        except TurnReleased:
            await lease.queue.release(claim)
            return
        n = claim.turn.n
        await Turns(self._client).commit(claim, history=[], lines=[reply("ok", n)], event=TurnEvent(n, "done"))
        self.ended.append(claim.session)

    async def end(self) -> None:
        for loop in self.made:
            loop.drain()
            loop.interrupt_all()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


@pytest.fixture
async def loops(client: RedisClient) -> AsyncIterator[Loops]:
    made = Loops(client)
    yield made
    await made.end()


async def test_a_fifth_of_all_turns_is_of_the_background_and_none_waits_for_ever(
    client: RedisClient, loops: Loops
) -> None:
    """Two workers with 5 slots, both queues full: of the first 100 turns 20, and then all the others."""
    inbox = Inbox(client)
    for i in range(100):
        await person(inbox, f"p{i}")
        await tick(inbox, f"tick/{i}")
    loops.start(slots=3)
    loops.start(slots=2)
    loops.gate.set()
    await eventually(lambda: len(loops.ended) == 200, within_s=60)
    ticks = [chat for chat in loops.begun[:100] if chat.startswith("tick/")]
    assert 18 <= len(ticks) <= 22
    assert set(ticks) <= {f"tick/{i}" for i in range(25)}, "in the order in which they came"
    assert await client.command("EXISTS", keys.queue("turns"), keys.queue(keys.BACKGROUND), keys.FAIR_KEYS) == 0


async def test_a_tick_is_begun_at_once_by_an_idle_worker(client: RedisClient, loops: Loops) -> None:
    """It is woken: its own look would come in two minutes. What is left behind wakes the next one."""
    inbox = Inbox(client)
    for _ in range(2):
        loops.start(slots=1)
    await eventually(lambda: _blocked(client, 2))
    await tick(inbox, "tick/0")
    await tick(inbox, "tick/1")
    await eventually(lambda: len(loops.begun) == 2, within_s=30)


async def test_a_persons_message_brings_a_tick_to_an_idle_worker(client: RedisClient, loops: Loops) -> None:
    """Full, both of them; what was put off in the background is due as before."""
    inbox = Inbox(client)
    await tick(inbox, "p/a")
    queue = LeaseQueue(client, "turns", owner="w", lease_s=LEASE_S)
    [claim] = await queue.acquire(1)
    await queue.release(claim, delay_s=100)
    loops.start(slots=1)
    await eventually(lambda: _blocked(client, 1))
    await person(inbox, "p")
    assert await client.command("ZCARD", keys.queue(keys.BACKGROUND)) == 0
    score = await client.command("ZSCORE", keys.queue("turns"), keys.turn("web:p/a"))
    seconds, _ = await client.command("TIME")
    assert float(score) > (int(seconds) + 50) * 1000, "a delay is no queue"
    assert loops.begun == []


async def test_a_drained_tick_goes_on_elsewhere(client: RedisClient, loops: Loops) -> None:
    """It goes back to the background, keeps its place there, and wakes another worker."""
    inbox = Inbox(client)
    first = loops.start(slots=1)
    await tick(inbox, "tick/0")
    await eventually(lambda: loops.begun == ["tick/0"])
    await tick(inbox, "tick/1")
    first.drain()
    first.interrupt_all()
    await eventually(lambda: first.running == 0)
    assert await client.command("ZRANGE", keys.queue(keys.BACKGROUND), 0, -1) == [
        b"turn:web:tick/0",
        b"turn:web:tick/1",
    ]
    loops.start(slots=1)
    await eventually(lambda: loops.begun == ["tick/0", "tick/0"])


async def test_the_guardian_of_a_dead_worker_gives_its_ticks_back(
    client: RedisClient, redis_url: str, loops: Loops
) -> None:
    """Counted as a crash, due in the background, and an idle worker is woken."""
    owner, inbox = nonce(), Inbox(client)
    await tick(inbox, "tick/0")
    await person(inbox, "p")
    assert len(await LeaseQueue(client, "turns", owner=owner, lease_s=LEASE_S).acquire(2)) == 2
    loops.start(slots=2)
    await eventually(lambda: _blocked(client, 1))
    leases = WorkerLeases(redis_url, LEASE_S, owner)
    assert await asyncio.to_thread(leases.release_all, crashed=True) == 2
    leases.close()
    await eventually(lambda: sorted(loops.begun) == ["p/a", "tick/0"], within_s=30)
    assert await client.command("HGET", keys.session("web:tick/0"), "crashes") == b"1"


async def _blocked(client: RedisClient, count: int) -> bool:
    listed = (await client.command("CLIENT", "LIST")).decode()
    return sum("cmd=blpop" in line for line in listed.splitlines()) == count
