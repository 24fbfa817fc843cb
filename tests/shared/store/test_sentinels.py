"""Sentinels say which server is the primary: a majority of them, and as long as they say so."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from urllib.parse import quote, urlsplit

import pytest

from shared.errors import RedisAway
from shared.process.resp import RespConnection
from shared.store.client import finder
from shared.store.client.address import Address, Locator, read_address
from shared.store.client.pubsub import pubsub
from shared.store.client.redis_client import RedisClient
from tests.helpers.stream_server import stream_server
from tests.helpers.wait import eventually
from worker.arq.lease_worker import WakingRedis, _make_pool

SERVICE = "mymaster"


class FakeSentinel:
    """Answers what it is asked with `place`, which a test changes; with None it says nothing."""

    def __init__(self, place: tuple[str, int] | None) -> None:
        self.place = place
        self.port = 0
        self.flags, self.pong_ms = "master", 300

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while line := await reader.readuntil(b"\r\n"):
                words = []
                for _ in range(int(line[1:])):
                    size = int((await reader.readuntil(b"\r\n"))[1:])
                    words.append((await reader.readexactly(size + 2))[:-2].decode())
                writer.write(self._answer(words))
        writer.close()

    def _answer(self, words: Sequence[str]) -> bytes:
        if words[0] == "PING":
            return b"+PONG\r\n"
        if words[0] != "SENTINEL":
            return b"-ERR unknown command\r\n"  # like a server that forbids CLIENT and HELLO
        if self.place is None:
            return b""
        if words[-1] != SERVICE:
            return b"*-1\r\n"
        host, port = self.place[0], str(self.place[1])
        if words[1] == "MASTER":
            facts = ["ip", host, "port", port, "flags", self.flags, "last-ok-ping-reply", str(self.pong_ms)]
            return f"*{len(facts)}\r\n".encode() + b"".join(f"${len(one)}\r\n{one}\r\n".encode() for one in facts)
        return f"*2\r\n${len(host)}\r\n{host}\r\n${len(port)}\r\n{port}\r\n".encode()


@pytest.fixture
async def three(redis_url: str) -> AsyncIterator[list[FakeSentinel]]:
    """Three of them that name the server of the test."""
    parts = urlsplit(redis_url)
    assert parts.hostname is not None
    assert parts.port is not None
    made = [FakeSentinel((parts.hostname, parts.port)) for _ in range(3)]
    async with contextlib.AsyncExitStack() as stack:
        for one in made:
            one.port = await stack.enter_async_context(stream_server(one.serve))
        yield made


def url_of(three: Sequence[FakeSentinel], redis_url: str, service: str = SERVICE) -> str:
    hosts = ",".join(f"127.0.0.1:{one.port}" for one in three)
    login = quote(urlsplit(redis_url).password or "", safe="")
    return f"redis+sentinel://:{login}@{hosts}/{service}/0"


@pytest.fixture
async def found(three: list[FakeSentinel], redis_url: str) -> AsyncIterator[RedisClient]:
    client = RedisClient(url_of(three, redis_url), timeout_s=0.3)
    yield client
    await client.close()


async def test_the_primary_that_they_name_is_used(
    found: RedisClient, three: list[FakeSentinel], redis_url: str
) -> None:
    """By our client, by the guardian, and by arq's."""
    assert await found.command("SET", "a", "1") == b"OK"
    connection = await asyncio.to_thread(RespConnection, url_of(three, redis_url))
    assert await asyncio.to_thread(connection.command, "GET", "a") == b"1"
    connection.close()
    pool = WakingRedis(_make_pool(url_of(three, redis_url), found.locator))
    assert await pool.get("a") == b"1"
    await pool.aclose()
    await pool.connection_pool.disconnect()


async def test_a_minority_is_not_believed(found: RedisClient, three: list[FakeSentinel], redis_url: str) -> None:
    """One that was cut off together with a former primary names that; and one does not answer."""
    named = three[0].place
    three[0].place, three[1].place = ("127.0.0.1", 1), None
    with pytest.raises(RedisAway, match="1 of 3 Sentinels name the same primary of 'mymaster', not a majority"):
        await found.command("PING")
    with pytest.raises(OSError, match="no majority"):
        await asyncio.to_thread(RespConnection, url_of(three, redis_url), timeout_s=0.3)
    three[1].place = named
    assert await found.command("PING") == b"PONG"


async def test_a_primary_is_seen_when_a_majority_had_an_answer_from_it(
    found: RedisClient, three: list[FakeSentinel]
) -> None:
    """They go on to name one that they lost, until they have promoted another: then its writes are lost."""
    await found.command("PING")
    see = found.locator.sees_primary
    three[0].pong_ms, three[1].pong_ms, place = 2500, 1900, three[2].place
    assert await see()
    three[1].flags = "master,s_down"
    assert not await see()
    three[1].flags, three[2].place = "master", ("127.0.0.1", 1)
    assert not await see()
    three[2].place = None
    assert not await see()
    three[2].place = place
    assert await see()
    assert not await Locator(found.locator.address).sees_primary()


async def test_a_service_that_they_do_not_know_is_named_in_the_error(three: list[FakeSentinel], redis_url: str) -> None:
    """A typing error in the name."""
    client = RedisClient(url_of(three, redis_url, "nobody"), timeout_s=0.3)
    with pytest.raises(RedisAway, match="0 of 3 Sentinels name the same primary of 'nobody'"):
        await client.command("PING")
    await client.close()


async def test_every_connection_leaves_when_another_server_is_the_primary(
    found: RedisClient, three: list[FakeSentinel], redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also one that is idle, and one with subscriptions: a former primary that lives on could answer it. The new
    one is only another name of the same server here."""
    monkeypatch.setattr(finder, "WATCH_S", 0.05)
    number = await found.command("CLIENT", "ID")
    pool = WakingRedis(_make_pool(url_of(three, redis_url), found.locator))
    of_arq = await pool.client_id()
    async with pubsub(found) as news:
        assert three[0].place is not None
        port = three[0].place[1]
        three[0].place = three[1].place = ("localhost", port)
        await eventually(lambda: news._wire.lost)
    assert await found.command("CLIENT", "ID") != number
    assert await pool.client_id() != of_arq
    assert found.locator.is_current(await found.locator.locate())
    await pool.connection_pool.disconnect()


def test_an_address_of_sentinels_is_read_whole() -> None:
    """Ports and the database are as usual if they are not there."""
    read = read_address(
        "rediss+sentinel://u:p%40@a:1,b,[::1]:7/cache/2?sentinel_user=s&sentinel_password=t&sentinel_tls=no"
    )
    assert (read.service, read.db, read.user, read.password) == ("cache", 2, "u", "p@")
    assert read.tls is not None
    hosts = [(one.host, one.port) for one in read.sentinels]
    assert hosts == [("a", 1), ("b", 26379), ("::1", 7)]
    assert read.sentinels[0] == Address("a", 1, user="s", password="t")


@pytest.mark.parametrize("url", ["redis+sentinel://a:1", "redis+sentinel://a,/x", "unix+sentinel://a/x"])
def test_what_names_no_sentinels_is_refused(url: str) -> None:
    """With a ValueError."""
    with pytest.raises(ValueError, match=r"Sentinels|begins with"):
        read_address(url)
