"""The door to Redis: commands, scripts, typed errors."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, TypeVar

from shared.backoff import Backoff
from shared.errors import RedisAway, Refused
from shared.metrics import REDIS_COMMAND_SECONDS
from shared.store.client.address import read_address
from shared.store.client.connection import RedisConnection, ReplyError, Wire
from shared.store.client.connection import Value as Value
from shared.store.client.scripts import AWAY_REPLIES, Script, sha

T = TypeVar("T")

SOCKET_TIMEOUT_S: Final = 2.0

NOT_LET_IN: Final = ("NOAUTH", "WRONGPASS", "ERR AUTH", "ERR max number of clients")
"""Beginnings of answers to a connection that the server does not take."""


class RedisClient:
    """One connection to one Redis, shared by a process.

    Every method raises RedisAway when the server cannot be asked, Refused("overloaded") when it has
    no memory left for new data, and ReplyError for any other refusal. After RedisAway, or when a
    call is cancelled, the command may or may not have happened; every script can be sent again.
    """

    def __init__(self, url: str, *, timeout_s: float = SOCKET_TIMEOUT_S, name: str = "shoal") -> None:
        self._address = read_address(url)
        self._name = name
        self._timeout_s = timeout_s
        self._connection = self._connect(2 * timeout_s)

    @property
    def user(self) -> str:
        """Whose name is in the address; nothing when it has none."""
        return self._address.user

    async def run(
        self, script: Script, keys: Sequence[str], args: Sequence[Value] = (), *, retry_for_s: float = 0.0
    ) -> Any:
        """Run a script by its hash, sending its source when the server does not know it (restart,
        fail-over).

        With `retry_for_s` it is repeated so long (see `with_retries`).
        """
        call = (len(keys), *keys, *args)
        if retry_for_s:
            return await with_retries(lambda: self._run(script, call), retry_for_s)
        return await self._run(script, call)

    async def _run(self, script: Script, call: tuple[Value, ...]) -> Any:
        try:
            return await self.command("EVALSHA", sha(script), *call)
        except ReplyError as exc:
            if not unknown_script(exc):
                raise
            return await self.command("EVAL", script.source, *call)

    async def command(self, *parts: Value) -> Any:
        """Send one command and return its answer, texts as bytes."""
        started = time.perf_counter()
        try:
            return await self._connection.call(parts)
        except (OSError, ReplyError) as exc:
            raise map_error(exc) from exc
        finally:
            REDIS_COMMAND_SECONDS.observe(time.perf_counter() - started)

    async def pipeline(self, commands: Sequence[Sequence[Value]]) -> list[Any]:
        """Send several independent commands in one round trip. Raises the first error among the
        answers."""
        started = time.perf_counter()
        try:
            return await self._connection.calls(commands)
        except (OSError, ReplyError) as exc:
            raise map_error(exc) from exc
        finally:
            REDIS_COMMAND_SECONDS.observe(time.perf_counter() - started)

    def blocking(self, timeout_s: float) -> BlockingConnection:
        """A connection of its own for commands that wait on the server for at most `timeout_s`."""
        return BlockingConnection(self._connect(timeout_s + self._timeout_s))

    async def open(self) -> Wire:
        """A connection for the caller alone, which the caller ends. Raises RedisAway."""
        try:
            return await self._connection.open()
        except (OSError, ReplyError) as exc:
            raise map_error(exc) from exc

    async def close(self) -> None:
        """Close the connection."""
        await self._connection.close()

    def _connect(self, limit_s: float) -> RedisConnection:
        return RedisConnection(self._address, name=self._name, connect_s=self._timeout_s, limit_s=limit_s)


class BlockingConnection:
    """One connection for BLPOP and the like. A call that is cancelled or fails closes it; the next
    opens it again."""

    def __init__(self, connection: RedisConnection) -> None:
        self._connection = connection

    async def command(self, *parts: Value) -> Any:
        """Send one command and wait for its answer. Raises RedisAway, ReplyError."""
        [answer] = await self.commands([parts])
        if isinstance(answer, ReplyError):
            raise answer
        return answer

    async def commands(self, commands: Sequence[Sequence[Value]]) -> list[Any]:
        """Send several together: the server begins with each when it is done with the one before,
        and its wait. The answers, errors among them. Raises RedisAway."""
        try:
            answers = await self._connection.answers(commands)
        except OSError as exc:
            self._connection.drop()
            raise map_error(exc) from exc
        except asyncio.CancelledError:
            self._connection.drop()  # or the server would go on waiting for us
            raise
        for answer in answers:
            if isinstance(answer, ReplyError) and isinstance(away := map_error(answer), RedisAway):
                self._connection.drop()
                raise away
        return answers

    async def close(self) -> None:
        """Close the connection."""
        await self._connection.close()


def unknown_script(error: object) -> bool:
    """Whether the server has answered that it has no script of this hash."""
    return isinstance(error, ReplyError) and str(error).startswith("NOSCRIPT")


async def with_retries(ask: Callable[[], Awaitable[T]], for_s: float) -> T:
    """What `ask` answers; it is asked again with full jitter (50 ms to 1.5 s) while Redis is away,
    at most so long."""
    give_up_at, backoff = time.monotonic() + for_s, None
    while True:
        try:
            return await ask()
        except RedisAway:
            backoff = backoff or Backoff()
            wait_s = next(backoff)
            if time.monotonic() + wait_s >= give_up_at:
                raise
            await asyncio.sleep(wait_s)


def map_error(exc: OSError | ReplyError) -> Exception:
    """What callers are told; `exc` itself when it is none of the usual."""
    text = str(exc)
    if isinstance(exc, OSError) or text.startswith(NOT_LET_IN):
        return RedisAway(f"Redis is away: {type(exc).__name__ if isinstance(exc, OSError) else text[:60]}")
    if text.startswith(AWAY_REPLIES):
        return RedisAway(f"Redis cannot serve now: {text.split(' ', 1)[0]}")
    if "OOM" in text[:40] or "maxmemory" in text:
        return Refused("overloaded", "the store is full; please try again in a minute", 60)
    return exc
