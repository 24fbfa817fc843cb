"""The door to Redis: connections, scripts, typed errors."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

from redis import asyncio as aioredis
from redis import exceptions as redis_errors
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from shared.backoff import full_jitter
from shared.errors import RedisAway, Refused
from shared.metrics import REDIS_COMMAND_SECONDS
from shared.store.scripts import AWAY_REPLIES, Script, sha

SOCKET_TIMEOUT_S: Final = 2.0
RECONNECT_FIRST_S: Final = 0.05
RECONNECT_CAP_S: Final = 1.5

_UNTOLD: Final[dict[str, Any]] = {"lib_name": None, "lib_version": None}
"""A connection says nothing of redis-py: two commands less after each reconnect, and no right to them needed."""

Value = str | bytes | int | float


def _keepalive_options() -> dict[int, int]:
    """Notice a dead peer within about 25 s, where the platform lets us say so."""
    wanted = {"TCP_KEEPIDLE": 10, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 3}
    return {getattr(socket, name): value for name, value in wanted.items() if hasattr(socket, name)}


class RedisClient:
    """A pool of at most `connections` connections to one Redis, shared by a process.

    Every method raises RedisAway when the server cannot be asked, and Refused("overloaded") when it has no memory
    left for new data. After RedisAway the command may or may not have happened; every script can be sent again.
    A call that is cancelled drops its connection, so no answer ever reaches another caller.
    """

    def __init__(
        self, url: str, *, connections: int = 8, timeout_s: float = SOCKET_TIMEOUT_S, name: str = "shoal"
    ) -> None:
        if url.startswith("unix://"):
            options: dict[str, Any] = {}
        else:
            options = {
                "socket_keepalive": True,
                "socket_keepalive_options": _keepalive_options(),
                **_tls_options(url),
            }
        self._url = url
        self._options: dict[str, Any] = {
            **options,
            "socket_connect_timeout": timeout_s,
            # Times are kept here, not there: redis-py would use asyncio.wait_for, which before Python 3.12 loses a
            # cancellation that comes at the wrong moment.
            "socket_timeout": None,
            "retry": Retry(NoBackoff(), 0),
            "client_name": name,
            **_UNTOLD,
        }
        self._timeout_s = timeout_s
        self._limit_s = 2 * timeout_s  # for a free connection, and for the answer
        self._pool = aioredis.BlockingConnectionPool.from_url(
            url, max_connections=connections, timeout=timeout_s, **self._options
        )
        self._redis = aioredis.Redis(connection_pool=self._pool)
        self._redis.response_callbacks.clear()  # answers as the server gives them; the store knows their shapes

    @property
    def user(self) -> str:
        """Whose name is in the address; nothing when it has none."""
        return urlsplit(self._url).username or ""

    async def run(
        self, script: Script, keys: Sequence[str], args: Sequence[Value] = (), *, retry_for_s: float = 0.0
    ) -> Any:
        """Run a script by its hash, sending its source when the server does not know it (restart, fail-over).

        With `retry_for_s` the call is repeated with full jitter (50 ms to 1.5 s) while Redis is away, at most so long.
        """
        call = (len(keys), *keys, *args)
        give_up_at = time.monotonic() + retry_for_s
        for wait_s in full_jitter(RECONNECT_FIRST_S, RECONNECT_CAP_S):
            try:
                try:
                    return await self.command("EVALSHA", sha(script), *call)
                except redis_errors.NoScriptError:
                    return await self.command("EVAL", script.source, *call)
            except RedisAway:
                if time.monotonic() + wait_s >= give_up_at:
                    raise
                await asyncio.sleep(wait_s)
        raise AssertionError("full_jitter never ends")

    async def command(self, *parts: Value) -> Any:
        """Send one command and return its answer, texts as bytes."""
        with REDIS_COMMAND_SECONDS.time(), _typed_errors():
            async with asyncio.timeout(self._limit_s):
                return await self._redis.execute_command(*parts)  # type: ignore[no-untyped-call]

    async def pipeline(self, commands: Sequence[Sequence[Value]]) -> list[Any]:
        """Send several independent commands in one round trip. Raises the first error among the answers."""
        with REDIS_COMMAND_SECONDS.time(), _typed_errors():
            async with asyncio.timeout(self._limit_s), self._redis.pipeline(transaction=False) as pipe:
                for parts in commands:
                    pipe.execute_command(*parts)
                answers: list[Any] = await pipe.execute()
                return answers

    def blocking(self, timeout_s: float) -> Blocking:
        """A connection of its own for commands that wait on the server for at most `timeout_s`."""
        return Blocking(self._url, self._options, timeout_s + self._timeout_s)

    @contextlib.asynccontextmanager
    async def pubsub(self) -> AsyncIterator[PubSub]:
        """A pub/sub connection of its own."""
        redis = aioredis.Redis.from_url(self._url, **self._options)
        try:
            yield PubSub(redis.pubsub())
        finally:
            with contextlib.suppress(redis_errors.RedisError, OSError):
                await redis.aclose()

    async def close(self) -> None:
        """Close all connections."""
        await self._redis.aclose()
        await self._pool.disconnect()


def plain_pool(url: str) -> aioredis.ConnectionPool:
    """A redis-py pool for a library that brings its own client. It connects when it is first used."""
    return aioredis.BlockingConnectionPool.from_url(
        url,
        socket_timeout=SOCKET_TIMEOUT_S,
        socket_connect_timeout=SOCKET_TIMEOUT_S,
        max_connections=8,
        timeout=None,
        **_UNTOLD,
        **_tls_options(url),
    )


def _tls_options(url: str) -> dict[str, Any]:
    """A certificate is for a host; redis-py would take anybody's who has one from the same authority."""
    return {"ssl_check_hostname": True} if url.startswith("rediss://") else {}


class Blocking:
    """One connection for BLPOP and the like. A call that is cancelled or fails closes it; the next opens it again."""

    def __init__(self, url: str, options: dict[str, Any], limit_s: float) -> None:
        self._limit_s = limit_s
        self._redis = aioredis.Redis.from_url(url, max_connections=1, **options)
        self._redis.response_callbacks.clear()

    async def command(self, *parts: Value) -> Any:
        """Send one command and wait for its answer. Raises RedisAway."""
        with _typed_errors():
            async with asyncio.timeout(self._limit_s):
                return await self._redis.execute_command(*parts)

    async def close(self) -> None:
        """Close the connection."""
        await self._redis.aclose()


class Heard(NamedTuple):
    """Something that came over a pub/sub connection: `kind` is `subscribe`, `unsubscribe`, `message` or `pong`."""

    kind: str
    channel: str
    data: bytes


class PubSub:
    """A pub/sub connection. Every method raises RedisAway when it broke; it is of no use then."""

    def __init__(self, pubsub: aioredis.client.PubSub) -> None:
        self._pubsub = pubsub

    async def subscribe(self, *channels: str) -> None:
        """Ask for these channels; the server confirms each by a `subscribe` that `next` returns."""
        with _typed_errors():
            await self._pubsub.subscribe(*channels)

    async def unsubscribe(self, channel: str) -> None:
        """Ask to hear no more of it."""
        with _typed_errors():
            await self._pubsub.unsubscribe(channel)

    async def ping(self) -> None:
        """Ask for a `pong`."""
        with _typed_errors():
            await self._pubsub.ping()

    async def next(self, timeout_s: float) -> Heard | None:
        """The next thing the server says, None if it says nothing for `timeout_s`."""
        with _typed_errors():
            message = await self._pubsub.get_message(timeout=timeout_s)
        if message is None:
            return None
        data = message["data"]
        return Heard(message["type"], (message["channel"] or b"").decode(), data if isinstance(data, bytes) else b"")


@contextlib.contextmanager
def _typed_errors() -> Iterator[None]:
    try:
        yield
    except redis_errors.NoScriptError:
        raise
    except (redis_errors.ConnectionError, redis_errors.TimeoutError, OSError) as exc:
        raise RedisAway(f"Redis is away: {type(exc).__name__}") from exc
    except redis_errors.OutOfMemoryError as exc:
        raise Refused("overloaded", "the store is full; please try again in a minute", 60) from exc
    except redis_errors.ResponseError as exc:
        text = str(exc)
        if isinstance(exc, redis_errors.ReadOnlyError) or text.startswith(AWAY_REPLIES):
            raise RedisAway(f"Redis cannot serve now: {text.split(' ', 1)[0]}") from exc
        if "OOM" in text[:40] or "maxmemory" in text:
            raise Refused("overloaded", "the store is full; please try again in a minute", 60) from exc
        raise
