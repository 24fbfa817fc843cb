"""A write counts when `redis.copies` servers have it: a real primary and a replica that is stopped, and comes back."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Iterator

import pytest

from shared.embedded import EmbeddedValkey
from shared.errors import RedisAway
from shared.metrics import REDIS_SHORT_WRITES, totals
from shared.store import keys
from shared.store.client import durable
from shared.store.client.redis_client import RedisClient
from shared.store.client.scripts import Script, load, script_names
from shared.store.turns.inbox import Inbox
from shared.store.turns.queue import LeaseQueue
from tests.helpers.build import say
from tests.helpers.valkey import command, fresh
from tests.helpers.wait import eventually
from worker.process.worker_handle import WorkerLeases


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[EmbeddedValkey, EmbeddedValkey]]:
    """A primary and its replica."""
    folder = tmp_path_factory.mktemp("copies")
    primary, replica = EmbeddedValkey(folder / "primary"), EmbeddedValkey(folder / "replica")
    primary.start()
    replica.start()
    command(replica.url, "CONFIG", "SET", "masterauth", password_of(primary))
    yield primary, replica
    primary.stop()
    replica.stop()


def password_of(server: EmbeddedValkey) -> str:
    return server.url.split(":")[2].partition("@")[0]


@pytest.fixture
async def pair(servers: tuple[EmbeddedValkey, EmbeddedValkey]) -> AsyncIterator[tuple[EmbeddedValkey, EmbeddedValkey]]:
    """Both, in step and with nothing in them."""
    primary, replica = servers
    fresh(primary)
    follow(replica, primary)
    await eventually(lambda: asyncio.to_thread(in_step, primary), within_s=30)
    yield primary, replica
    assert replica.pid is not None
    os.kill(replica.pid, signal.SIGCONT)


def follow(replica: EmbeddedValkey, primary: EmbeddedValkey) -> None:
    command(replica.url, "REPLICAOF", "127.0.0.1", str(primary.port))


def in_step(primary: EmbeddedValkey) -> bool:
    return "state=online" in command(primary.url, "INFO", "replication")


def stop(server: EmbeddedValkey) -> None:
    assert server.pid is not None
    os.kill(server.pid, signal.SIGSTOP)


def go_on(server: EmbeddedValkey) -> None:
    assert server.pid is not None
    os.kill(server.pid, signal.SIGCONT)


class SeenPrimary(RedisClient):
    """A client for which a majority sees the primary when `seen` says so."""

    seen = True

    def __init__(self, url: str, *, copies: int) -> None:
        super().__init__(url, copies=copies)
        assert self._durable is not None
        self._durable._is_primary = self._sees

    async def _sees(self) -> bool:
        return self.seen


@pytest.fixture
async def client(pair: tuple[EmbeddedValkey, EmbeddedValkey]) -> AsyncIterator[SeenPrimary]:
    """Writes wait for both servers."""
    made = SeenPrimary(pair[0].url, copies=2)
    yield made
    await made.close()


async def test_what_is_accepted_is_at_the_replica(
    client: SeenPrimary, pair: tuple[EmbeddedValkey, EmbeddedValkey]
) -> None:
    """At once, not some time later. All of one iteration of the loop share one WAIT."""
    before = int(command(pair[0].url, "INFO", "commandstats").partition("cmdstat_wait:calls=")[2].split(",")[0] or 0)
    accepted = await asyncio.gather(*(say(Inbox(client), chat=f"owner/{n}") for n in range(20)))
    assert [one.turn for one in accepted] == [1] * 20
    here = [command(pair[1].url, "XLEN", keys.inbox(f"web:owner/{n}")) for n in range(20)]
    assert here == ["1"] * 20
    stats = command(pair[0].url, "INFO", "commandstats").partition("cmdstat_wait:calls=")[2]
    # The scripts were not known to the server yet: once by hash, once with the source.
    assert int(stats.split(",")[0]) - before <= 3


async def test_without_its_replica_a_server_confirms_nothing_not_even_a_repeat(
    client: SeenPrimary, pair: tuple[EmbeddedValkey, EmbeddedValkey]
) -> None:
    """A repeat writes nothing, so it has nothing that WAIT could wait for."""
    primary, replica = pair
    await say(Inbox(client), id="before")
    stop(replica)
    for _ in range(2):
        other = RedisClient(primary.url, copies=2)
        with pytest.raises(RedisAway, match="1 of 2 servers"):
            await say(Inbox(other), id="m")
        await other.close()
    assert command(primary.url, "XLEN", keys.inbox("web:owner/a")) == "2"
    go_on(replica)
    again = await say(Inbox(client), id="m")
    assert (again.duplicate, again.turn) == (True, 2)


async def test_reads_that_are_passed_on_wait_too(
    client: SeenPrimary, pair: tuple[EmbeddedValkey, EmbeddedValkey]
) -> None:
    """As a line that is shown on a page: whoever wrote it may never get its confirmation."""
    stop(pair[1])
    with pytest.raises(RedisAway):
        await client.settled()


async def test_replicas_that_stay_away_are_done_without_while_a_majority_sees_the_primary(
    client: SeenPrimary, pair: tuple[EmbeddedValkey, EmbeddedValkey], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such writes are counted. When the majority is lost, and when the replica is back, all are wanted again."""
    primary, replica = pair
    monkeypatch.setattr(durable, "MISSING_S", 0.1)
    monkeypatch.setattr(durable, "CHECK_S", 0.02)
    monkeypatch.setattr(durable, "WAIT_S", 0.05)
    accepted_before = totals(REDIS_SHORT_WRITES).get(("accepted",), 0)
    command(replica.url, "REPLICAOF", "NO", "ONE")
    with pytest.raises(RedisAway):
        await client.settled()
    await eventually(lambda: settles(client))
    assert totals(REDIS_SHORT_WRITES)[("accepted",)] > accepted_before
    client.seen = False
    await eventually(lambda: fails(client))
    client.seen = True
    await eventually(lambda: settles(client))
    await asyncio.to_thread(follow, replica, primary)
    assert client._durable is not None
    watching = client._durable
    await eventually(lambda: watching._watching is None, within_s=30)
    assert watching._needed == 1
    await client.settled()


async def test_the_guardian_lets_no_worker_go_on_by_a_renewal_that_one_server_has(
    client: SeenPrimary, pair: tuple[EmbeddedValkey, EmbeddedValkey]
) -> None:
    """A former primary that lives on would renew for ever."""
    leases = WorkerLeases(pair[0].url, 15, "a" * 32, copies=2)
    await say(Inbox(client))
    await LeaseQueue(client, "turns", owner="a" * 32, lease_s=15).acquire(1)
    assert await asyncio.to_thread(leases.renew) == 1
    stop(pair[1])
    with pytest.raises(OSError, match="1 of 2 servers have the renewal"):
        await asyncio.to_thread(leases.renew)
    leases.close()


async def settles(client: RedisClient) -> bool:
    try:
        await client.settled()
    except RedisAway:
        return False
    return True


async def fails(client: RedisClient) -> bool:
    return not await settles(client)


async def test_a_full_server_still_confirms_what_makes_room(
    client: SeenPrimary, pair: tuple[EmbeddedValkey, EmbeddedValkey]
) -> None:
    """It refuses most writes, and with them the one that WAIT is to wait for."""
    await client.settled()
    command(pair[0].url, "CONFIG", "SET", "maxmemory", "1")
    try:
        await client.settled()
        stop(pair[1])
        with pytest.raises(RedisAway):
            await client.settled()
    finally:
        command(pair[0].url, "CONFIG", "SET", "maxmemory", "0")


async def test_no_durable_script_confirms_a_repeat(
    client: SeenPrimary, pair: tuple[EmbeddedValkey, EmbeddedValkey]
) -> None:
    """Whatever the script, one that finds everything done writes nothing. Others are not held up."""
    repeats = [load(name)._replace(source="return 'known'") for name in script_names() if load(name).durable]
    assert len(repeats) > 25
    known = await asyncio.gather(*(client.evaluate(one, (0,)) for one in repeats))
    assert known == [b"known"] * len(repeats)
    stop(pair[1])
    refused = await asyncio.gather(*(client.evaluate(one, (0,)) for one in repeats), return_exceptions=True)
    assert [type(one) for one in refused] == [RedisAway] * len(repeats)
    assert await client.evaluate(Script("turns/acquire", "return 'claimed'"), (0,)) == b"claimed"


async def test_one_copy_costs_nothing(redis_url: str) -> None:
    """No WAIT, no further connection, no further write."""
    client = RedisClient(redis_url)
    await say(Inbox(client))
    await client.settled()
    assert client._durable is None
    assert await client.command("EXISTS", keys.CONFIRMED) == 0
    await client.close()


async def test_calls_of_a_client_that_closes_fail(
    client: SeenPrimary, pair: tuple[EmbeddedValkey, EmbeddedValkey]
) -> None:
    """None waits for ever."""
    stop(pair[1])
    waiting = asyncio.create_task(client.settled())
    await eventually(lambda: client._durable is not None and client._durable._sending is not None)
    await client.close()
    with pytest.raises(RedisAway):
        await waiting
