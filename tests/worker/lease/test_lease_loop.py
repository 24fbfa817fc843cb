"""The lease loop on a real Valkey, with runners of the test's own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from shared.clock import SYSTEM_CLOCK, Clock
from shared.embedded import EmbeddedValkey
from shared.errors import LeaseLost, TurnReleased, TurnStopped
from shared.ids import nonce
from shared.messages.live import TurnEvent
from shared.store import keys
from shared.store.client.redis_client import RedisClient
from shared.store.fleet.presence import kill_worker_of
from shared.store.turns.inbox import Inbox
from shared.store.turns.queue import LeaseQueue
from shared.store.turns.turn_writes import Turns
from shared.tasks import cancel_all
from tests.helpers.build import message, reply, say
from tests.helpers.clock import HandClock
from tests.helpers.wait import eventually
from worker.lease.lease import Lease
from worker.lease.lease_loop import LeaseLoop, Runner
from worker.process.loop_group import StopListener

LEASE_S = 2.0


class Fleet:
    """Loops that run until the test is over."""

    def __init__(self, client: RedisClient) -> None:
        self._client = client
        self.loops: list[LeaseLoop] = []
        self.tasks: list[asyncio.Task[None]] = []

    def make(self, run: Runner, *, slots: int = 10, lease_s: float = LEASE_S, clock: Clock | None = None) -> LeaseLoop:
        queue = LeaseQueue(self._client, "turns", owner=nonce(), lease_s=lease_s)
        loop = LeaseLoop(queue, slots=slots, run=run, clock=clock or SYSTEM_CLOCK)
        self.loops.append(loop)
        return loop

    def start(self, run: Runner, **options: object) -> LeaseLoop:
        loop = self.make(run, **options)  # type: ignore[arg-type]
        self.tasks.append(asyncio.create_task(loop.run()))
        return loop

    async def end(self) -> None:
        for loop in self.loops:
            loop.drain()
            loop.interrupt_all()
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)


@pytest.fixture
async def fleet(client: RedisClient) -> AsyncIterator[Fleet]:
    made = Fleet(client)
    yield made
    await made.end()


def committer(client: RedisClient, done: list[str], gate: asyncio.Event | None = None) -> Runner:
    """A runner that waits for the gate, then commits; releases when it is told to end."""

    async def run(lease: Lease) -> None:
        claim = lease.claim
        assert claim.turn is not None
        try:
            with lease.interruptible():
                if gate is not None:
                    await gate.wait()
                await lease.allow()
        except TurnReleased:
            await lease.queue.release(claim)
            return
        n = claim.turn.n
        await Turns(client).commit(claim, history=[], lines=[reply("ok", n)], event=TurnEvent(n, "done"))
        done.append(claim.session)

    return run


async def test_two_loops_use_all_their_slots_and_run_each_session_once(client: RedisClient, fleet: Fleet) -> None:
    """Fleet concurrency is the sum of the slots: no cap, and work spreads over the workers."""
    gate, done = asyncio.Event(), list[str]()
    loops = [fleet.start(committer(client, done, gate), slots=100) for _ in range(2)]
    inbox = Inbox(client)
    await asyncio.gather(*(say(inbox, chat=f"owner/{i}") for i in range(200)))
    await eventually(lambda: sum(loop.running for loop in loops) == 200)
    assert [loop.running for loop in loops] == [100, 100]
    gate.set()
    await eventually(lambda: len(done) == 200)
    assert len(set(done)) == 200


async def test_one_message_wakes_exactly_one_idle_worker(client: RedisClient, fleet: Fleet) -> None:
    """No herd: with ten idle workers a message costs one extra acquire, not ten."""
    done = list[str]()
    for _ in range(10):
        fleet.start(committer(client, done), lease_s=15.0)
    await eventually(lambda: _blocked(client, 10))
    await client.command("CONFIG", "RESETSTAT")
    await say(Inbox(client))
    await eventually(lambda: done)
    stats = (await client.command("INFO", "commandstats")).decode()
    calls = next(line for line in stats.splitlines() if line.startswith("cmdstat_evalsha:"))
    count = int(calls.split("calls=")[1].split(",")[0])
    # ingest, acquire, commit; and polls of the others that may fall into the same moment
    assert count <= 3 + 5


async def _blocked(client: RedisClient, many: int) -> bool:
    info = (await client.command("INFO", "clients")).decode()
    return f"blocked_clients:{many}" in info


async def test_an_idle_worker_sends_at_most_six_commands_a_second(client: RedisClient, fleet: Fleet) -> None:
    """An idle worker waits on the server; the floor of its polling is one second."""
    for _ in range(2):  # a worker serves two queues
        fleet.start(committer(client, []), lease_s=15.0)
    await eventually(lambda: _blocked(client, 2))
    start = await _client_commands(client)
    first = await _server_ms(client)
    await eventually(lambda: _passed(client, first, 3000), within_s=60, every_s=0.5)
    spent_s = (await _server_ms(client) - first) / 1000
    looks = 2 + 7  # our own questions above
    per_second = (await _client_commands(client) - start - looks) / spent_s
    assert per_second <= 6


async def _client_commands(client: RedisClient) -> int:
    stats = (await client.command("INFO", "commandstats")).decode()
    total = 0
    for line in stats.splitlines():
        name = line.partition(":")[0].removeprefix("cmdstat_")
        if name in {"evalsha", "eval", "blpop", "publish", "hscan"}:
            total += int(line.split("calls=")[1].split(",")[0])
    return total


async def _server_ms(client: RedisClient) -> int:
    seconds, micros = await client.command("TIME")
    return int(seconds) * 1000 + int(micros) // 1000


async def _passed(client: RedisClient, since: int, ms: int) -> bool:
    return await _server_ms(client) - since >= ms


async def test_a_renewed_lease_outlives_its_length(client: RedisClient, fleet: Fleet) -> None:
    """A turn longer than the lease stays with its worker."""
    gate, done = asyncio.Event(), list[str]()
    lease_s = 0.5
    holder = fleet.start(committer(client, done, gate), lease_s=lease_s)
    await say(Inbox(client))
    await eventually(lambda: holder.running == 1)
    other = fleet.start(committer(client, done), lease_s=lease_s)
    begun = await _server_ms(client)
    await eventually(lambda: _passed(client, begun, 800))
    assert (holder.running, other.running) == (1, 0)
    gate.set()
    await eventually(lambda: done)


async def test_a_worker_that_lost_its_lease_notices_it_and_writes_nothing(client: RedisClient, fleet: Fleet) -> None:
    """A paused worker wakes up late: its turn ends with LeaseLost, the successor's commit stands."""
    ended: list[BaseException] = []

    async def run(lease: Lease) -> None:
        try:
            with lease.interruptible():
                await asyncio.Event().wait()
        except LeaseLost as exc:
            ended.append(exc)
            raise

    paused = fleet.make(run, lease_s=0.5)
    await say(Inbox(client))
    assert await paused.claim_once()
    await eventually(lambda: paused.running == 1)
    done = list[str]()
    fleet.start(committer(client, done), lease_s=0.5)
    await eventually(lambda: done)
    await paused.renew_once()
    await eventually(lambda: ended)
    await eventually(lambda: paused.running == 0)


async def test_past_three_quarters_of_the_lease_nothing_new_is_started(client: RedisClient, fleet: Fleet) -> None:
    """Self-fence: `allow` waits from 75 % of the lease on, and returns with the next renewal that is granted."""
    clock, leases = HandClock(), list[Lease]()
    end = asyncio.Event()

    async def run(lease: Lease) -> None:
        leases.append(lease)
        await end.wait()
        await lease.queue.release(lease.claim)

    loop = fleet.make(run, clock=clock, lease_s=100)
    await say(Inbox(client))
    await loop.claim_once()
    await eventually(lambda: leases)
    clock.at += 74
    await asyncio.wait_for(leases[0].allow(), 30)
    clock.at += 2
    assert leases[0].suspended
    waiting = asyncio.create_task(leases[0].allow())
    await asyncio.sleep(0)
    assert not waiting.done()
    await loop.renew_once()
    await asyncio.wait_for(waiting, 30)
    end.set()


async def test_a_stop_reaches_the_running_turn_and_only_that_one(client: RedisClient, fleet: Fleet) -> None:
    """The flag in the session comes back with the renewal and ends the turn it names."""
    stopped: list[int] = []

    async def run(lease: Lease) -> None:
        assert lease.claim.turn is not None
        try:
            with lease.interruptible():
                await asyncio.Event().wait()
        except TurnStopped:
            stopped.append(lease.claim.turn.n)
            n = lease.claim.turn.n
            await Turns(client).commit(lease.claim, history=[], lines=[], event=TurnEvent(n, "stopped"))
        except TurnReleased:
            await lease.queue.release(lease.claim)

    loop = fleet.start(run)
    inbox = Inbox(client)
    await say(inbox)
    await say(inbox)
    await eventually(lambda: loop.running == 1)
    await inbox.stop("web:owner/a")
    await loop.renew_once()
    await eventually(lambda: stopped == [1])
    await eventually(lambda: loop.running == 1)
    await loop.renew_once()
    assert stopped == [1]


async def test_a_drain_hands_the_work_over_within_a_moment(client: RedisClient, fleet: Fleet) -> None:
    """SIGTERM: nothing new is taken, what runs is released and taken by another worker, nothing counted."""
    gate, done = asyncio.Event(), list[str]()
    old = fleet.start(committer(client, done, gate))
    await say(Inbox(client))
    await eventually(lambda: old.running == 1)
    fleet.start(committer(client, done))
    old.drain()
    old.interrupt_all()
    await eventually(lambda: done)
    fields = await client.command("HMGET", keys.session("web:owner/a"), "errors", "crashes")
    assert fields == [None, None]
    await asyncio.wait_for(fleet.tasks[0], 30)


async def test_what_is_still_claimed_during_a_drain_is_released_at_once(client: RedisClient, fleet: Fleet) -> None:
    """The wake-up of what was just released may reach our own wait before the message that ends it."""
    done = list[str]()
    old = fleet.make(committer(client, [], asyncio.Event()))
    await say(Inbox(client))
    old.drain()
    old.interrupt_all()
    await old.claim_once()
    await eventually(lambda: old.running == 0)
    fleet.start(committer(client, done))
    await eventually(lambda: done)
    fields = await client.command("HMGET", keys.session("web:owner/a"), "errors", "crashes")
    assert fields == [None, None]


async def test_a_broken_runner_costs_only_its_own_turn(client: RedisClient, fleet: Fleet) -> None:
    """A bug goes to the log; the lease is given back with an error counted, others go on."""
    done = list[str]()
    commit = committer(client, done)

    async def run(lease: Lease) -> None:
        if lease.claim.session == "web:owner/bad":
            raise RuntimeError("a bug")
        await commit(lease)

    fleet.start(run)
    await say(Inbox(client), chat="owner/bad")
    await say(Inbox(client), chat="owner/good")
    await eventually(lambda: done == ["web:owner/good"])
    await eventually(lambda: _errors(client, "web:owner/bad"))


async def _errors(client: RedisClient, session: str) -> bool:
    return bool(await client.command("HGET", keys.session(session), "errors") == b"1")


async def test_a_broken_key_of_the_fleet_ends_no_worker(client: RedisClient, fleet: Fleet) -> None:
    """It waits as for Redis; once the key is mended it goes on."""
    gate, done = asyncio.Event(), list[str]()
    loop = fleet.start(committer(client, done, gate), lease_s=0.5)
    await say(Inbox(client))
    await eventually(lambda: loop.running == 1)
    await client.pipeline([("DEL", keys.leases("turns")), ("SET", keys.leases("turns"), "not a hash")])
    await eventually(lambda: not loop.connected.is_set())
    assert not any(task.done() for task in fleet.tasks)
    await client.command("DEL", keys.leases("turns"))
    gate.set()
    await eventually(lambda: done == ["web:owner/a"])


async def test_a_stop_that_names_nothing_ends_no_worker(client: RedisClient, fleet: Fleet) -> None:
    """A list of subagents that is full of something else sends such names when its chat is stopped."""
    gate, done = asyncio.Event(), list[str]()
    loop = fleet.start(committer(client, done, gate))
    await say(Inbox(client))
    await eventually(lambda: loop.running == 1)
    stops = StopListener(client, [loop])
    await stops.subscribe()
    listening = asyncio.create_task(stops.run())
    await eventually(lambda: client.command("PUBLISH", keys.CONTROL, b"sub:\x8f\xff 1"))
    await client.command("PUBLISH", keys.CONTROL, f"{keys.turn('web:owner/a')} x")
    await client.command("PUBLISH", keys.CONTROL, f"{keys.turn('web:owner/a')} 1")
    await eventually(lambda: not loop.running)
    assert not listening.done()
    assert done == []
    await cancel_all([listening])


async def test_only_the_worker_of_a_chat_is_killed_and_only_where_that_is_offered(
    client: RedisClient, fleet: Fleet
) -> None:
    """The page of a demo may ask for it. A worker that offers it not goes on, as one that has not got the turn."""
    gate, done, killed = asyncio.Event(), list[str](), list[str]()
    loop = fleet.start(committer(client, done, gate))
    await say(Inbox(client))
    await eventually(lambda: loop.running == 1)
    listeners = [
        StopListener(client, [loop], kill=lambda: killed.append("the demo")),
        StopListener(client, [], kill=lambda: killed.append("another")),
        StopListener(client, [loop]),
    ]
    for stops in listeners:
        await stops.subscribe()
    listening = [asyncio.create_task(stops.run()) for stops in listeners]
    await eventually(lambda: _listened(client, len(listeners)))
    await kill_worker_of(client, "web:owner/b")
    await kill_worker_of(client, "web:owner/a")
    await eventually(lambda: killed)
    assert (killed, loop.running) == (["the demo"], 1)
    gate.set()
    await eventually(lambda: done)
    await cancel_all(listening)


async def _listened(client: RedisClient, listeners: int) -> bool:
    """Whether so many listen to the control channel."""
    _, count = await client.command("PUBSUB", "NUMSUB", keys.CONTROL)
    return int(count) >= listeners


async def test_a_chat_that_cannot_be_committed_is_released_for_a_minute(client: RedisClient, fleet: Fleet) -> None:
    """The model answers it again: not at once, and again."""
    gate, done = asyncio.Event(), list[str]()
    loop = fleet.start(committer(client, done, gate), lease_s=15)
    for chat in ("owner/broken", "owner/other"):
        await say(Inbox(client), chat=chat)
    await eventually(lambda: loop.running == 2)
    await client.pipeline([("DEL", keys.outbox("web:owner/broken")), ("SET", keys.outbox("web:owner/broken"), "x")])
    gate.set()
    await eventually(lambda: done == ["web:owner/other"])
    await eventually(lambda: not loop.running)
    seconds, _ = await client.command("TIME")
    due_ms = float(await client.command("ZSCORE", keys.queue("turns"), keys.turn("web:owner/broken")))
    assert 50 < due_ms / 1000 - int(seconds) <= 61
    assert await client.command("HLEN", keys.leases("turns")) == 0


async def test_the_loop_outlives_a_restart_of_redis(valkey: EmbeddedValkey, client: RedisClient, fleet: Fleet) -> None:
    """Redis away: the worker stays, the running turn goes on, scripts are loaded again, new work is taken."""
    await client.command("CONFIG", "SET", "appendfsync", "always")
    gate, done = asyncio.Event(), list[str]()
    loop = fleet.start(committer(client, done, gate), lease_s=4)
    await say(Inbox(client), chat="owner/before")
    await eventually(lambda: loop.running == 1)
    await asyncio.to_thread(valkey.restart)
    gate.set()
    await Inbox(client).ingest(message(chat="owner/after"), retry_for_s=10)
    await eventually(lambda: sorted(done) == ["web:owner/after", "web:owner/before"], within_s=60)


@pytest.mark.parametrize("slots", [0, -1])
def test_a_loop_without_slots_is_refused(client: RedisClient, slots: int, fleet: Fleet) -> None:
    """Settings are checked when the actor is made."""
    with pytest.raises(ValueError, match="slot"):
        fleet.make(committer(client, []), slots=slots)
