"""Our client for Redis on top of redis-py instead of our own connection, so that a bench can pair the two.

Everything above the connection stays: scripts by hash, pipelines as one write, typed errors. The library gets what
favours it: the parser of hiredis, one pool without a limit or a health check, no callbacks that make objects of
replies, and one timer a call instead of its own two, one of which starts a task.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from typing import Any, Final
from weakref import WeakSet

import redis.asyncio as library
from redis import exceptions
from redis._parsers import _AsyncHiredisParser

from shared.store.client import redis_client
from shared.store.client.address import Locator
from shared.store.client.connection import ReplyError, Value, Wire

_CODES: Final = {
    exceptions.NoScriptError: "NOSCRIPT",
    exceptions.ReadOnlyError: "READONLY",
    exceptions.OutOfMemoryError: "OOM",
    exceptions.BusyLoadingError: "LOADING",
    exceptions.NoPermissionError: "NOPERM",
    exceptions.AuthenticationError: "WRONGPASS",
}
"""What the library cuts off the replies that it knows."""


def install() -> None:
    """Let every RedisClient of this process that is made from now on use the library."""
    redis_client.__dict__["RedisConnection"] = PooledConnection


class PooledConnection:
    """Stands where a RedisConnection does."""

    def __init__(
        self, locator: Locator, *, name: str, connect_s: float, limit_s: float, wires: WeakSet[Wire] | None = None
    ) -> None:
        address = locator.address
        assert address.tls is None, "the servers of benches are plain"
        self._limit_s = limit_s
        self._redis: Any = library.Redis(
            host=address.host,
            port=address.port,
            unix_socket_path=address.path or None,
            db=address.db,
            username=address.user or None,
            password=address.password or None,
            client_name=name,
            socket_connect_timeout=connect_s,
            socket_keepalive=True,
            lib_name=None,
            lib_version=None,
        )
        self._redis.response_callbacks.clear()
        self._pool: Any = self._redis.connection_pool
        assert self._pool.connection_class()._parser.__class__ is _AsyncHiredisParser

    async def call(self, parts: tuple[Value, ...]) -> Any:
        """Send one command and return its reply."""
        try:
            async with asyncio.timeout(self._limit_s):
                return await self._redis.execute_command(*parts)
        except exceptions.RedisError as error:
            raise _mapped(error) from error

    async def calls(self, commands: Sequence[Sequence[Value]]) -> list[Any]:
        """Send commands together, return their replies."""
        answers = await self.answers(commands)
        for answer in answers:
            if isinstance(answer, ReplyError):
                raise answer
        return answers

    async def answers(self, commands: Sequence[Sequence[Value]]) -> list[Any]:
        """Send commands together and return their replies, errors among them."""
        if len(commands) == 1:
            try:
                return [await self.call(tuple(commands[0]))]
            except ReplyError as error:
                return [error]
        pipe = self._redis.pipeline(transaction=False)
        for parts in commands:
            pipe.execute_command(*parts)
        try:
            async with asyncio.timeout(self._limit_s):
                found = await pipe.execute(raise_on_error=False)
        except exceptions.RedisError as error:
            raise _mapped(error) from error
        return [_mapped(one) if isinstance(one, exceptions.RedisError) else one for one in found]

    async def check_role(self) -> None:
        """Ask the server for its role."""
        await self.call(("HELLO", 2))

    def drop(self) -> None:
        """Close what is open; a call that was cancelled closed its own."""
        for connection in self._pool._available_connections:
            if connection._writer is not None:
                connection._writer.close()

    async def close(self) -> None:
        """Close the pool."""
        await self._redis.aclose()

    async def open(self) -> PubSubWire:
        """A connection for subscriptions."""
        try:
            async with asyncio.timeout(self._limit_s):
                return PubSubWire(await self._pool.get_connection())
        except exceptions.RedisError as error:
            raise _mapped(error) from error


class PubSubWire:
    """Stands where a Wire with a listener does. Without the library's own class for subscriptions, which makes a dict
    of every message: it costs less so."""

    def __init__(self, connection: Any) -> None:
        self.lost = False
        self._connection = connection
        self._tasks: set[asyncio.Task[None]] = set()
        self._commands: asyncio.Queue[tuple[Value, ...]] = asyncio.Queue()

    def set_listener(self, listener: Any) -> None:
        """Give every message to `listener`."""
        self._listener = listener
        self._tasks = {asyncio.create_task(self._read()), asyncio.create_task(self._write())}

    def send_command(self, parts: tuple[Value, ...]) -> None:
        """Send one command."""
        self._commands.put_nowait(parts)

    def end(self) -> None:
        """Close it."""
        if not self.lost:
            self.lost = True
            for task in self._tasks:
                task.cancel()
            if self._connection._writer is not None:
                self._connection._writer.close()
            self._listener(None)

    async def _read(self) -> None:
        with contextlib.suppress(exceptions.RedisError):
            while True:
                self._listener(await self._connection.read_response())
        self.end()

    async def _write(self) -> None:
        with contextlib.suppress(exceptions.RedisError):
            while True:
                await self._connection.send_command(*await self._commands.get())
        self.end()


def _mapped(error: exceptions.RedisError) -> ReplyError | OSError:
    code = _CODES.get(type(error))
    if code is None and not isinstance(error, exceptions.ResponseError):
        return ConnectionError(str(error))
    return ReplyError(f"{code} {error}" if code else str(error))
