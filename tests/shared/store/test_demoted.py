"""A primary that becomes a replica while clients are connected: each leaves it at once, and asks again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from gateway.upkeep import RedisWatch
from shared.errors import RedisAway
from shared.store.client.connection import ReplyError
from shared.store.client.pubsub import pubsub
from shared.store.client.redis_client import RedisClient
from shared.store.turns.queue import LeaseQueue
from shared.tasks import cancel_all
from tests.helpers import valkey
from tests.helpers.wait import eventually
from tests.shared.store.test_connection import server


class Server:
    """The server of the test. Its own connection does not ask for the role."""

    def __init__(self, url: str) -> None:
        self._url = url

    async def demote(self) -> None:
        """Make it a replica of a primary that does not exist."""
        await asyncio.to_thread(valkey.command, self._url, "REPLICAOF", "127.0.0.1", "1")

    async def promote(self) -> None:
        await asyncio.to_thread(valkey.command, self._url, "REPLICAOF", "NO", "ONE")


@pytest.fixture
async def primary(redis_url: str) -> AsyncIterator[Server]:
    made = Server(redis_url)
    yield made
    await made.promote()


async def test_a_refused_write_ends_every_connection_of_the_client(client: RedisClient, primary: Server) -> None:
    """The next call connects again, wherever the address leads then; so do subscriptions, which are never refused."""
    number = await client.command("CLIENT", "ID")
    async with pubsub(client) as news:
        await primary.demote()
        with pytest.raises(RedisAway, match="is a replica"):
            await client.command("SET", "a", "1")
        with pytest.raises(RedisAway):
            news.ping()
    await primary.promote()
    assert await client.command("SET", "a", "1") == b"OK"
    assert await client.command("CLIENT", "ID") != number


async def test_a_script_that_is_refused_counts_as_a_refused_write(client: RedisClient, primary: Server) -> None:
    """Scripts are most of what is sent, and those beside it in a pipeline are unknown, too."""
    await client.run("jobs/wake", queue="turns")
    number = await client.command("CLIENT", "ID")
    await primary.demote()
    asked = client.run("jobs/wake", queue="turns"), client.command("GET", "a")
    answers = await asyncio.gather(*asked, return_exceptions=True)
    assert isinstance(answers[0], RedisAway)
    await primary.promote()
    assert await client.command("CLIENT", "ID") != number


async def test_a_worker_that_waits_leaves_with_all_its_connections(client: RedisClient, primary: Server) -> None:
    """The server ends the wait itself. Reads over the other connection would be answered, from old data."""
    number = await client.command("CLIENT", "ID")
    queue = LeaseQueue(client, "turns", owner="a" * 32, lease_s=15.0)
    assert await queue.acquire(1) == []
    waiting = asyncio.create_task(queue.acquire_next(1))
    await eventually(lambda: _waits(client))
    await primary.demote()
    with pytest.raises(RedisAway):
        await waiting
    await primary.promote()
    assert await client.command("CLIENT", "ID") != number
    assert await queue.acquire(1) == []
    await queue.close()


async def _waits(client: RedisClient) -> bool:
    return b"blocked_clients:1" in await client.command("INFO", "clients")


async def test_a_replica_is_not_connected_to(redis_url: str, primary: Server) -> None:
    """Also not to read, or to subscribe: what it has may be old. The console says what it found."""
    await primary.demote()
    fresh = RedisClient(redis_url)
    with pytest.raises(RedisAway, match=r"a replica.*redis\.url must lead to the primary"):
        await fresh.command("GET", "a")
    with pytest.raises(RedisAway, match="a replica"):
        await fresh.open()
    await primary.promote()
    assert await fresh.command("GET", "a") is None
    await fresh.close()


async def test_a_gateway_is_not_ready_at_a_replica(client: RedisClient, primary: Server) -> None:
    """Which answers PING like a primary."""
    watch = RedisWatch(client)
    running = asyncio.create_task(watch.run())
    await eventually(lambda: watch.available)
    await primary.demote()
    await eventually(lambda: watch.available is False)
    await primary.promote()
    await eventually(lambda: watch.available)
    await cancel_all([running])


@pytest.mark.parametrize(
    ("reply", "error"),
    [
        (b"*4\r\n$4\r\nmode\r\n$7\r\ncluster\r\n$4\r\nrole\r\n$6\r\nmaster\r\n", "a node of a cluster"),
        (b"*2\r\n$4\r\nrole\r\n$5\r\nslave\r\n", "a replica"),
        (b"-MASTERDOWN Link with MASTER is down\r\n", "a replica"),
        (b"-ERR unknown command 'HELLO'\r\n", ""),
        (b"*2\r\n$4\r\nrole\r\n$6\r\nmaster\r\n", ""),
    ],
)
async def test_what_a_server_says_of_itself_decides(reply: bytes, error: str) -> None:
    """One that refuses to tell is taken for a primary: proxies do not know every command."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"HELLO\r\n$1\r\n2\r\n")
        writer.write(b"+OK\r\n" + reply)
        if not error:
            await reader.readuntil(b"PING\r\n")
            writer.write(b"+PONG\r\n")

    async with server(serve) as port:
        client = RedisClient(f"redis://127.0.0.1:{port}/0")
        if error:
            with pytest.raises(RedisAway, match=error):
                await client.command("PING")
        else:
            assert await client.command("PING") == b"PONG"
        await client.close()


@pytest.mark.parametrize(
    ("refusal", "away"),
    [("ERR unknown command 'CLIENT'", False), ("NOPERM no permissions", False), ("NOAUTH required.", True)],
)
async def test_a_server_may_forbid_to_name_a_connection(refusal: str, away: bool) -> None:
    """Managed services have no CLIENT. Who was not let in at all must not go on."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"HELLO\r\n$1\r\n2\r\n")
        writer.write(f"-{refusal}\r\n-ERR unknown command 'HELLO'\r\n".encode())
        if not away:
            await reader.readuntil(b"PING\r\n")
            writer.write(b"+PONG\r\n")

    async with server(serve) as port:
        client = RedisClient(f"redis://127.0.0.1:{port}/0")
        if away:
            with pytest.raises(RedisAway, match="NOAUTH"):
                await client.command("PING")
        else:
            assert await client.command("PING") == b"PONG"
        await client.close()


async def test_other_errors_keep_the_connection(client: RedisClient) -> None:
    """They are about the command."""
    number = await client.command("CLIENT", "ID")
    with pytest.raises(ReplyError):
        await client.command("NO-SUCH-COMMAND")
    assert await client.command("CLIENT", "ID") == number
