"""The guardian as a process of its own, with stand-ins for workers, on a real Valkey."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import psutil
import pytest

from shared.ids import nonce
from shared.store import keys
from shared.store.client.redis_client import RedisClient
from shared.store.turns.inbox import Inbox
from shared.store.turns.queue import LeaseQueue
from tests.helpers.build import say
from tests.helpers.wait import eventually
from worker.process.worker_handle import GuardianConfig

ROOT = Path(__file__).parents[3]

Start = Callable[..., subprocess.Popen[bytes]]


@pytest.fixture
def start(redis_url: str) -> Iterator[Start]:
    """Starts a guardian over stand-ins that behave in a given way; ends it with its children."""
    started: list[subprocess.Popen[bytes]] = []

    def start_one(
        behaviour: str, *, lease_s: float = 2.0, stuck_s: float = 60.0, processes: int = 1, spare: bool = False
    ) -> subprocess.Popen[bytes]:
        config = json.dumps(GuardianConfig(redis_url, lease_s, 5.0, processes, stuck_s)._asdict())
        command = (sys.executable, "-m", "tests.helpers.guarded", config, behaviour)
        running = f"sys.exit(Guardian({command!r}, spare={spare}).run())"
        script = f"import sys; from worker.process.guardian import Guardian; {running}"
        guardian = subprocess.Popen([sys.executable, "-c", script], cwd=ROOT, stderr=subprocess.DEVNULL)
        started.append(guardian)
        return guardian

    yield start_one
    for guardian in started:
        if guardian.poll() is None:
            for child in psutil.Process(guardian.pid).children():
                with contextlib.suppress(psutil.NoSuchProcess):
                    child.kill()
            guardian.kill()
        guardian.wait()


def children(guardian: subprocess.Popen[bytes]) -> list[psutil.Process]:
    found: list[psutil.Process] = psutil.Process(guardian.pid).children()
    return found


async def leased(client: RedisClient) -> int:
    return int(await client.command("HLEN", keys.leases("turns")))


async def fill(client: RedisClient, many: int = 3) -> None:
    for i in range(many):
        await say(Inbox(client), chat=f"owner/{i}")


async def test_the_leases_of_a_killed_worker_are_free_long_before_their_end(client: RedisClient, start: Start) -> None:
    """kill -9 of a worker with a lease of a minute and more: its leases are free, a crash is counted for each turn.
    That a takeover costs less than a second is for `proof.chaos.takeover` to measure."""
    await fill(client)
    guardian = start("tick", lease_s=120)
    await eventually(lambda: leased(client))
    owners = await owners_of(client)
    [worker] = children(guardian)
    worker.kill()
    await eventually(lambda: _gone(client, owners))
    crashes = [await client.command("HGET", keys.session(f"web:owner/{i}"), "crashes") for i in range(3)]
    assert crashes == [b"1", b"1", b"1"]


async def owners_of(client: RedisClient) -> set[bytes]:
    return {lease.partition(b":")[0] for lease in (await client.command("HGETALL", keys.leases("turns")))[1::2]}


async def _gone(client: RedisClient, owners: set[bytes]) -> bool:
    return not owners & await owners_of(client)


async def test_a_dead_worker_is_started_again(client: RedisClient, start: Start) -> None:
    """A new process with a nonce of its own takes the work up."""
    await fill(client)
    guardian = start("tick", lease_s=60)
    await eventually(lambda: leased(client))
    [old] = children(guardian)
    owners = await owners_of(client)
    old.kill()
    await eventually(lambda: _others_than(client, owners))
    [new] = children(guardian)
    assert new.pid != old.pid


async def test_a_worker_that_ran_is_missed_at_once_however_often_it_dies(client: RedisClient, start: Start) -> None:
    """Back-off is for what cannot start; a fleet under fire keeps its size. After so many deaths back-off would be ten
    seconds each time; the quickest of three restarts counts, for the machine may have others to blame."""
    guardian = start("tick", lease_s=0.5)
    took_s: list[float] = []
    for deaths in range(10):
        began = time.monotonic()
        await eventually(partial(_workers_reported, client, deaths + 1))
        took_s.append(time.monotonic() - began)
        [worker] = await eventually(lambda: children(guardian))
        worker.kill()
        await asyncio.to_thread(worker.wait, 30)
    assert min(took_s[-3:]) < 5


async def test_a_spare_takes_the_place_of_a_dead_worker_at_once(client: RedisClient, start: Start) -> None:
    """It was started before, and took nothing until then. It ends with its guardian, in its place and out of it."""
    await fill(client)
    guardian = start("tick", lease_s=120, spare=True)
    await eventually(lambda: leased(client))
    owners = await owners_of(client)
    await eventually(lambda: client.command("GET", "test:spare"))
    worker, spare = _by_age(guardian, 2)
    worker.kill()
    await eventually(lambda: _others_than(client, owners))
    _, other = await eventually(lambda: _by_age(guardian, 2))
    assert spare in children(guardian)
    guardian.send_signal(signal.SIGTERM)
    assert await asyncio.to_thread(guardian.wait, 30) == signal.SIGTERM
    await eventually(lambda: not spare.is_running() and not other.is_running())


async def test_a_spare_ends_with_its_guardian(client: RedisClient, start: Start) -> None:
    """Nobody would ever name its slot."""
    guardian = start("tick", lease_s=120, spare=True)
    await eventually(lambda: client.command("GET", "test:spare"))
    _, spare = _by_age(guardian, 2)
    guardian.kill()
    guardian.wait()
    await eventually(lambda: not spare.is_running() or spare.status() == psutil.STATUS_ZOMBIE)


def _by_age(guardian: subprocess.Popen[bytes], many: int) -> list[psutil.Process]:
    found = sorted(children(guardian), key=lambda child: child.create_time())
    return found if len(found) == many else []


async def _others_than(client: RedisClient, before: set[bytes]) -> bool:
    now = await owners_of(client)
    return len(now) > 0 and not now & before


async def test_the_guardian_renews_for_a_worker_whose_event_loop_stands_still(
    client: RedisClient, start: Start
) -> None:
    """A regular expression that holds the interpreter longer than the lease does not cost the turn."""
    await fill(client)
    lease_s = 10.0  # a machine that stalls for some seconds stalls the guardian, too
    start("freeze", lease_s=lease_s)
    await eventually(lambda: leased(client))
    other = LeaseQueue(client, "turns", owner=nonce(), lease_s=lease_s)
    begun = int((await client.command("TIME"))[0])
    claims = []
    while int((await client.command("TIME"))[0]) - begun < lease_s + 2:
        claims += await other.acquire(10)
        await asyncio.sleep(0.05)
    assert claims == []
    assert await leased(client) == 3


async def test_a_worker_without_progress_is_killed_in_the_end(client: RedisClient, start: Start) -> None:
    """Standing in has a limit: after `stuck_s` the worker is ended and its work goes elsewhere."""
    await fill(client)
    guardian = start("freeze", lease_s=1, stuck_s=2)
    await eventually(lambda: leased(client))
    [old] = children(guardian)
    await eventually(lambda: not psutil.pid_exists(old.pid))
    await eventually(lambda: _crashes(client))


async def _crashes(client: RedisClient) -> bool:
    crashes: bytes | None = await client.command("HGET", keys.session("web:owner/0"), "crashes")
    return int(crashes or 0) >= 1  # its successor freezes as well


async def test_a_clean_end_counts_no_crash(client: RedisClient, start: Start) -> None:
    """Leases that a worker left behind at a clean end are given back, nothing counted."""
    await fill(client)
    start("end", lease_s=60)
    await eventually(lambda: _workers_reported(client, 2))
    assert await client.command("LINDEX", "test:said", 1) == b"3", "the second worker got what the first gave back"
    assert await client.command("HGET", keys.session("web:owner/0"), "crashes") is None


async def test_sigterm_is_handed_on_and_the_exit_code_comes_back(client: RedisClient, start: Start) -> None:
    """PID 1 in a container: passes the signal, waits for every worker, reaps, returns the worst code."""
    guardian = start("tick", processes=2)
    await eventually(lambda: len(children(guardian)) == 2)
    await eventually(lambda: _workers_reported(client, 2))
    guardian.send_signal(signal.SIGTERM)
    code = await asyncio.to_thread(guardian.wait, 30)
    assert code == signal.SIGTERM  # the stand-ins do not catch it


async def _workers_reported(client: RedisClient, many: int) -> bool:
    return int(await client.command("LLEN", "test:said")) >= many


async def test_a_worker_hears_that_its_guardian_died(client: RedisClient, start: Start) -> None:
    """Guardian dead: the worker drains instead of living on unguarded."""
    guardian = start("tick")
    await eventually(lambda: _workers_reported(client, 1))
    [worker] = children(guardian)
    guardian.kill()
    guardian.wait()
    await eventually(lambda: not worker.is_running() or worker.status() == psutil.STATUS_ZOMBIE)


async def test_the_guardian_is_small(client: RedisClient, start: Start) -> None:
    """It imports the standard library only, and holds under 20 MB."""
    guardian = start("tick")
    await eventually(lambda: _workers_reported(client, 1))
    assert psutil.Process(guardian.pid).memory_info().rss < 20 * 1024 * 1024
