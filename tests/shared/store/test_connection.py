"""A connection that many tasks share: each gets its own answer, whatever happens to the others."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import cast
from urllib.parse import urlsplit

import pytest

from shared.store.client.address import Address, Locator
from shared.store.client.connection import RedisConnection, ReplyError
from shared.store.client.redis_client import RedisClient
from tests.helpers.stream_server import stream_server
from tests.helpers.wait import eventually

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]

HELLO = b"*3\r\n$6\r\nCLIENT\r\n$7\r\nSETNAME\r\n$4\r\ntest\r\n*2\r\n$5\r\nHELLO\r\n$1\r\n2\r\n"
GREETING = b"+OK\r\n-ERR unknown command 'HELLO'\r\n"


def to(port: int, password: str = "", *, limit_s: float = 30.0, connect_s: float = 30.0) -> RedisConnection:
    address = Address("127.0.0.1", port, password=password)
    return RedisConnection(Locator(address), name="test", connect_s=connect_s, limit_s=limit_s)


@pytest.fixture
async def connection(redis_url: str) -> AsyncIterator[RedisConnection]:
    parts = urlsplit(redis_url)
    assert parts.port is not None
    made = to(parts.port, parts.password or "")
    yield made
    await made.close()


@contextlib.asynccontextmanager
async def server(serve: Serve) -> AsyncIterator[int]:
    """Something that only looks like Redis; its port. It ends when its clients have left."""
    at_work: set[asyncio.Task[None]] = set()

    async def visit(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        at_work.add(cast("asyncio.Task[None]", asyncio.current_task()))
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            await serve(reader, writer)
            await reader.read()
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()

    async with stream_server(visit) as port:
        yield port
        await asyncio.gather(*at_work)


async def deaf(_reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
    """Says nothing."""


async def test_a_thousand_tasks_get_each_its_own_answer(connection: RedisConnection) -> None:
    """Over one connection, in one write, in whatever order they ask."""
    answers = await asyncio.gather(*(connection.call(("ECHO", str(n))) for n in range(1000)))
    assert answers == [str(n).encode() for n in range(1000)]
    listed = await connection.call(("CLIENT", "LIST"))
    assert listed.count(b"name=test") == 1


async def test_a_refusal_is_for_whoever_asked(connection: RedisConnection) -> None:
    """Neighbours in the same write do not notice."""
    asked = [("ECHO", "a"), ("NO-SUCH-COMMAND",), ("ECHO", "b")]
    answers = await asyncio.gather(*map(connection.call, asked), return_exceptions=True)
    assert (answers[0], answers[2]) == (b"a", b"b")
    assert isinstance(answers[1], ReplyError)


async def test_commands_that_are_sent_together_are_all_done_when_one_is_refused(connection: RedisConnection) -> None:
    """The first refusal is raised afterwards."""
    with pytest.raises(ReplyError, match="wrong number"):
        await connection.calls([("SET", "a", "1"), ("GET",), ("SET", "b", "2")])
    assert await connection.calls([("GET", "a"), ("GET", "b")]) == [b"1", b"2"]
    assert await connection.calls([]) == []


async def test_a_call_that_is_cancelled_takes_nobody_elses_answer(connection: RedisConnection) -> None:
    """Its own comes later, and is dropped."""
    await connection.call(("PING",))
    doomed = asyncio.create_task(connection.call(("ECHO", "doomed")))
    await asyncio.sleep(0)
    doomed.cancel()
    assert await connection.call(("ECHO", "mine")) == b"mine"
    with pytest.raises(asyncio.CancelledError):
        await doomed


async def test_a_broken_connection_fails_all_that_wait_and_the_next_call_opens_another(
    connection: RedisConnection, client: RedisClient
) -> None:
    """None hangs, and none is sent again behind its caller's back."""
    number = await connection.call(("CLIENT", "ID"))
    waiting = [asyncio.create_task(connection.call(("BLPOP", f"nothing{n}", "0"))) for n in range(3)]
    await eventually(lambda: blocked(client))
    await client.command("CLIENT", "KILL", "ID", number)
    answers = await asyncio.gather(*waiting, return_exceptions=True)
    assert all(isinstance(one, ConnectionError) for one in answers)
    assert await connection.call(("CLIENT", "ID")) != number


async def blocked(client: RedisClient) -> bool:
    return b"blocked_clients:1" in await client.command("INFO", "clients")


async def test_a_call_that_waits_too_long_fails_and_so_do_those_after_it() -> None:
    """A server that takes everything and says nothing: half-open, or stopped."""

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(len(HELLO))
        writer.write(GREETING)

    async with server(silent) as port:
        connection = to(port, limit_s=0.2)
        answers = await asyncio.gather(*(connection.call(("ECHO", str(n))) for n in range(3)), return_exceptions=True)
        assert [type(one) for one in answers] == [TimeoutError] * 3
        await connection.close()


async def test_a_server_that_never_greets_is_given_up() -> None:
    """Also for those who came while it was being opened."""
    async with server(deaf) as port:
        connection = to(port, connect_s=0.2)
        answers = await asyncio.gather(connection.call(("PING",)), connection.call(("PING",)), return_exceptions=True)
        assert [type(one) for one in answers] == [TimeoutError] * 2
        await connection.close()


async def test_what_is_no_redis_ends_the_connection() -> None:
    """A wrong port in the settings."""

    async def web(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(10)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    async with server(web) as port:
        connection = to(port)
        with pytest.raises(ConnectionError):
            await connection.call(("PING",))
        await connection.close()


async def test_the_first_caller_may_leave_while_it_is_being_opened() -> None:
    """Others wait for the same attempt."""
    greeted, go_on = asyncio.Event(), asyncio.Event()

    async def slow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(len(HELLO))
        greeted.set()
        await go_on.wait()
        writer.write(GREETING)
        await reader.read(1)
        writer.write(b"+PONG\r\n")

    async with server(slow) as port:
        connection = to(port)
        first = asyncio.create_task(connection.call(("PING",)))
        await greeted.wait()
        second = asyncio.create_task(connection.call(("PING",)))
        await asyncio.sleep(0)
        first.cancel()
        go_on.set()
        assert await second == b"PONG"
        await connection.close()


async def test_closing_ends_what_waits() -> None:
    """Also an attempt to open it."""
    async with server(deaf) as port:
        connection = to(port)
        waiting = asyncio.create_task(connection.call(("PING",)))
        await asyncio.sleep(0)
        await connection.close()
        with pytest.raises(ConnectionError):
            await waiting


async def test_a_database_is_part_of_the_address(redis_url: str) -> None:
    """What stands there arrives at the server."""
    client = RedisClient(urlsplit(redis_url)._replace(path="/3").geturl())
    try:
        assert b" db=3 " in await client.command("CLIENT", "INFO")
    finally:
        await client.close()
