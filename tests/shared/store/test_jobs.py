"""Plain jobs on the real scripts: queued once, ended by their owner alone, and somebody is woken."""

from __future__ import annotations

import asyncio

import pytest

from shared.ids import nonce
from shared.store import keys
from shared.store.client.redis_client import RedisClient
from shared.store.jobs.jobs import Jobs
from shared.store.turns.queue import Claim, LeaseQueue
from worker.process.worker_handle import WorkerLeases

JOB_PREFIX, RESULT_PREFIX, RETRY, ABORTED = "arq:job:", "arq:result:", "arq:retry:", "arq:abort"


async def claims(client: RedisClient) -> Claim:
    """The one job that is due, leased, with nobody left to wake."""
    [claim] = await LeaseQueue(client, "jobs", owner=nonce(), lease_s=30).acquire(1)
    await client.command("DEL", keys.wake("jobs"))
    return claim


async def finish(
    client: RedisClient, claim: Claim, *, done: bool = True, delay_ms: int = 0, result: bytes = b"", keep_ms: int = 0
) -> bytes:
    """End a job as LeaseWorker does."""
    id = claim.member
    answer: bytes = await client.run(
        "jobs/finish",
        queue="jobs",
        result=RESULT_PREFIX + id,
        retry=RETRY + id,
        job=JOB_PREFIX + id,
        abort=ABORTED,
        member=id,
        lease=claim.lease_id,
        is_over=int(done),
        delay_ms=delay_ms,
        record=result,
        keep_ms=keep_ms,
    )
    return answer


async def test_a_job_wakes_a_worker_and_the_same_id_is_queued_once(client: RedisClient) -> None:
    """Nobody waits for the poll; a second request for work that waits is that work."""
    jobs = Jobs(client)
    for _ in range(2):
        await jobs.enqueue("work", "x", id="one")
    assert await client.command("ZCARD", keys.queue("jobs")) == 1
    assert await client.command("LLEN", keys.wake("jobs")) == 1
    await client.command("DEL", keys.wake("jobs"))
    await jobs.enqueue("work", "x", id="one")
    assert await client.command("LLEN", keys.wake("jobs")) == 0, "nothing new is due"


async def test_only_the_owner_of_a_lease_ends_a_job(client: RedisClient) -> None:
    """A late finisher changes nothing of its successor's."""
    await Jobs(client).enqueue("work", id="one")
    claim = await claims(client)
    late = Claim(claim.member, claim.owner, "1", 0, False, None)
    assert await finish(client, late, result=b"late") == b"lost"
    assert await client.command("HGET", keys.leases("jobs"), "one") == claim.lease_id.encode()
    assert await client.command("EXISTS", JOB_PREFIX + "one") == 1
    assert await client.command("EXISTS", RESULT_PREFIX + "one") == 0
    assert await finish(client, claim) == b"finished"
    assert await client.command("KEYS", "*one*") == []
    assert await client.command("EXISTS", keys.queue("jobs"), keys.leases("jobs")) == 0


@pytest.mark.parametrize(("keep_ms", "ends"), [(0, False), (60_000, True)])
async def test_a_result_is_kept_for_as_long_as_it_is_wanted(client: RedisClient, keep_ms: int, ends: bool) -> None:
    """0 is for ever."""
    await Jobs(client).enqueue("work", id="one")
    await finish(client, await claims(client), result=b"done", keep_ms=keep_ms)
    assert await client.command("GET", RESULT_PREFIX + "one") == b"done"
    assert (await client.command("PTTL", RESULT_PREFIX + "one") > 0) is ends


@pytest.mark.parametrize(("delay_ms", "woken"), [(0, 1), (60_000, 0)])
async def test_a_job_that_is_put_back_is_due_when_its_delay_is_over(
    client: RedisClient, delay_ms: int, woken: int
) -> None:
    """Without a delay somebody is woken at once; the record of the job stays."""
    await Jobs(client).enqueue("work", id="one")
    await finish(client, await claims(client), done=False, delay_ms=delay_ms)
    assert await client.command("EXISTS", JOB_PREFIX + "one") == 1
    assert await client.command("LLEN", keys.wake("jobs")) == woken
    again = await LeaseQueue(client, "jobs", owner=nonce(), lease_s=30).acquire(1)
    assert len(again) == woken


async def due_in_s(client: RedisClient, id: str) -> float:
    """How long until a job may be taken."""
    seconds, micros = await client.command("TIME")
    return float(await client.command("ZSCORE", keys.queue("jobs"), id)) / 1000 - int(seconds) - int(micros) / 1e6


async def buried(url: str, owner: str, *, crashed: bool) -> None:
    """What the guardian does for a dead worker."""
    leases = WorkerLeases(url, 30, owner)
    await asyncio.to_thread(leases.release_all, crashed=crashed)
    leases.close()


@pytest.mark.parametrize("id", ["consolidate:web:a/b", "archive:web:a/b", "rework:chat:web:a/b"])
async def test_a_memory_job_rests_after_a_crash(client: RedisClient, redis_url: str, id: str) -> None:
    """One that kills its worker would kill the next at once, and count against every turn beside it."""
    await Jobs(client).enqueue("work", id=id)
    claim = await claims(client)
    await buried(redis_url, claim.owner, crashed=True)
    assert 55 < await due_in_s(client, id) <= 60
    assert await client.command("HLEN", keys.leases("jobs")) == 0
    assert await client.command("LLEN", keys.wake("jobs")) == 0, "nobody is due"
    await client.command("ZADD", keys.queue("jobs"), 1, id)
    assert (await claims(client)).job_crashes == 1
    assert 0 < await client.command("PTTL", keys.crashed(id)) <= 86_400_000


async def test_other_jobs_are_due_at_once_after_a_crash(client: RedisClient, redis_url: str) -> None:
    """Somebody waits for them; their crashes are counted all the same."""
    await Jobs(client).enqueue("work", id="probe:1")
    claim = await claims(client)
    assert claim.job_crashes == 0
    await buried(redis_url, claim.owner, crashed=True)
    assert await client.command("LLEN", keys.wake("jobs")) == 1
    assert await client.command("EXISTS", "") == 0, "it is counted under the job's name, not in a session without one"
    assert (await claims(client)).job_crashes == 1


async def test_a_clean_end_counts_no_crash_of_a_job(client: RedisClient, redis_url: str) -> None:
    """What a drained worker leaves behind is due at once."""
    await Jobs(client).enqueue("work", id="consolidate:web:a/b")
    await buried(redis_url, (await claims(client)).owner, crashed=False)
    assert (await claims(client)).job_crashes == 0


async def test_a_job_whose_worker_and_guardian_are_lost_counts_a_crash(client: RedisClient) -> None:
    """A machine that runs out of memory takes both; the lapsed lease is what is left."""
    id = "consolidate:web:a/b"
    await Jobs(client).enqueue("work", id=id)
    await claims(client)
    await client.command("ZADD", keys.queue("jobs"), 1, id)
    assert await LeaseQueue(client, "jobs", owner=nonce(), lease_s=30).acquire(1) == []
    assert 55 < await due_in_s(client, id) <= 60
    await client.command("ZADD", keys.queue("jobs"), 1, id)
    again = await claims(client)
    assert (again.job_crashes, again.owner_lost) == (1, False)


async def test_crashes_of_a_job_are_forgotten_when_it_is_done(client: RedisClient, redis_url: str) -> None:
    """Not when it is put off: it has not shown yet that it can end."""
    id = "consolidate:web:a/b"
    await Jobs(client).enqueue("work", id=id)
    await buried(redis_url, (await claims(client)).owner, crashed=True)
    await client.command("ZADD", keys.queue("jobs"), 1, id)
    await finish(client, await claims(client), done=False)
    claim = await claims(client)
    assert claim.job_crashes == 1
    await finish(client, claim)
    assert await client.command("EXISTS", keys.crashed(id)) == 0
