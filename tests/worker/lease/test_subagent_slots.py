"""Subagents take three quarters of a worker's job slots at most: other jobs find one, and no wake-up is lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from shared.ids import nonce
from shared.store import keys
from shared.store.client.redis_client import RedisClient
from shared.store.jobs.jobs import Jobs
from shared.store.turns.queue import LeaseQueue
from shared.tasks import cancel_all
from tests.helpers.children import Parent, end
from tests.helpers.wait import eventually
from worker.lease.lease import Lease
from worker.lease.lease_loop import LeaseLoop


class Patient(LeaseQueue):
    """Looks only when it was woken."""

    WAIT_S = 60.0


class Workers:
    """Loops over the jobs; what they run ends when the test says so."""

    def __init__(self, client: RedisClient) -> None:
        self.client = client
        self.loops: list[LeaseLoop] = []
        self.gates: dict[str, asyncio.Event] = {}
        self._tasks: list[asyncio.Task[None]] = []

    def make(self, slots: int) -> LeaseLoop:
        loop = LeaseLoop(Patient(self.client, "jobs", owner=nonce(), lease_s=60), slots=slots, run=self._run)
        self.loops.append(loop)
        return loop

    def start(self, slots: int) -> LeaseLoop:
        loop = self.make(slots)
        self._tasks.append(asyncio.create_task(loop.run()))
        return loop

    async def close(self) -> None:
        await cancel_all([*self._tasks, *(task for loop in self.loops for task in loop._tasks)])

    async def _run(self, lease: Lease) -> None:
        member = lease.claim.member
        self.gates[member] = asyncio.Event()
        await self.gates[member].wait()
        if lease.claim.subagent is not None:
            await end(self.client, lease.claim)


@pytest.fixture
async def workers(client: RedisClient) -> AsyncIterator[Workers]:
    made = Workers(client)
    yield made
    await made.close()


async def spawned(client: RedisClient, many: int, chat: str = "owner/a") -> None:
    parent = await Parent.begin(client, chat=chat)
    await parent.spawn(*(f"{chat[-1]}{i:07}" for i in range(many)))
    await parent.commit()


async def queue_job(client: RedisClient, id: str) -> None:
    assert await Jobs(client).enqueue("job", id=id)


@pytest.mark.parametrize(("slots", "most"), [(1, 1), (2, 1), (4, 3), (20, 15)])
def test_of_the_slots_a_quarter_is_left_for_other_jobs(client: RedisClient, slots: int, most: int) -> None:
    """One subagent runs on the smallest worker, too."""
    assert Workers(client).make(slots).subagent_slots == most


async def test_a_job_behind_many_subagents_finds_a_slot(client: RedisClient, workers: Workers) -> None:
    """Two chats with ten subagents each do not fill a worker, and a memory job that comes last begins."""
    await spawned(client, 10, "owner/a")
    await spawned(client, 10, "owner/b")
    await queue_job(client, "memory")
    loop = workers.start(20)
    await eventually(lambda: loop.running == 16 and "memory" in workers.gates, within_s=60)
    await queue_job(client, "later")
    await eventually(lambda: "later" in workers.gates, within_s=60)
    assert sum(member.startswith("sub:") for member in workers.gates) == 15


async def test_a_worker_without_room_does_not_take_the_wake_up_of_a_subagent(
    client: RedisClient, workers: Workers
) -> None:
    """It would find nothing for itself, and whoever has room would sleep on."""
    await spawned(client, 1, "owner/a")
    full = workers.start(2)
    await eventually(lambda: full.running == 1, within_s=60)
    other = workers.start(2)
    await client.command("DEL", keys.wake("jobs"), keys.wake(keys.SUBAGENT_WAKE))
    await spawned(client, 1, "owner/b")
    await eventually(lambda: other.running == 1, within_s=60)
    assert full.running == 1


async def test_a_worker_looks_again_when_a_subagent_of_its_own_ends(client: RedisClient, workers: Workers) -> None:
    """It did not listen for subagents while it had no room for one."""
    await spawned(client, 2)
    loop = workers.start(2)
    await eventually(lambda: list(workers.gates) == ["sub:a0000000"], within_s=60)
    await client.command("DEL", keys.wake("jobs"), keys.wake(keys.SUBAGENT_WAKE))
    workers.gates["sub:a0000000"].set()
    await eventually(lambda: "sub:a0000001" in workers.gates, within_s=60)
    assert loop.running == 1
