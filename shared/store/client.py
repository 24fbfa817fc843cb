"""The door to Redis: scripts, typed errors, pub/sub."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

from redis import asyncio as aioredis
from redis import exceptions as redis_errors
from redis.asyncio.connection import RedisSSLContext, parse_url
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from shared.backoff import full_jitter
from shared.errors import RedisAway, Refused
from shared.metrics import REDIS_COMMAND_SECONDS
from shared.store.connection import Address, Connection, ReplyError, keep_alive_options
from shared.store.connection import Value as Value
from shared.store.scripts import AWAY_REPLIES, Script, sha

SOCKET_TIMEOUT_S: Final = 2.0
RECONNECT_FIRST_S: Final = 0.05
RECONNECT_CAP_S: Final = 1.5

NOT_LET_IN: Final = ("NOAUTH", "WRONGPASS", "ERR AUTH", "ERR max number of clients")
"""Beginnings of answers to a connection that the server does not take."""

_UNTOLD: Final[dict[str, Any]] = {"lib_name": None, "lib_version": None}
"""A connection says nothing of redis-py: two commands less after each reconnect, and no right to them needed."""


class RedisClient:
    """One connection to one Redis, shared by a process.

    Every method raises RedisAway when the server cannot be asked, Refused("overloaded") when it has no memory left for
    new data, and ReplyError for any other refusal. After RedisAway, or when a call is cancelled, the command may or may
    not have happened; every script can be sent again.
    """

    def __init__(self, url: str, *, timeout_s: float = SOCKET_TIMEOUT_S, name: str = "shoal") -> None:
        self._url = url
        self._name = name
        self._timeout_s = timeout_s
        self._connection = self._connect(2 * timeout_s)

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
        if not retry_for_s:
            return await self._run_once(script, call)
        give_up_at = time.monotonic() + retry_for_s
        for wait_s in full_jitter(RECONNECT_FIRST_S, RECONNECT_CAP_S):
            try:
                return await self._run_once(script, call)
            except RedisAway:
                if time.monotonic() + wait_s >= give_up_at:
                    raise
                await asyncio.sleep(wait_s)
        raise AssertionError("full_jitter never ends")

    async def _run_once(self, script: Script, call: tuple[Value, ...]) -> Any:
        try:
            return await self.command("EVALSHA", sha(script), *call)
        except ReplyError as exc:
            if not str(exc).startswith("NOSCRIPT"):
                raise
            return await self.command("EVAL", script.source, *call)

    async def command(self, *parts: Value) -> Any:
        """Send one command and return its answer, texts as bytes."""
        started = time.perf_counter()
        try:
            return await self._connection.call(parts)
        except (OSError, ReplyError) as exc:
            raise _typed(exc) from exc
        finally:
            REDIS_COMMAND_SECONDS.observe(time.perf_counter() - started)

    def post(self, *parts: Value) -> None:
        """Send one command and care no more for it: it may be lost, and an error is not told."""
        self._connection.post(parts)

    async def pipeline(self, commands: Sequence[Sequence[Value]]) -> list[Any]:
        """Send several independent commands in one round trip. Raises the first error among the answers."""
        started = time.perf_counter()
        try:
            return await self._connection.calls(commands)
        except (OSError, ReplyError) as exc:
            raise _typed(exc) from exc
        finally:
            REDIS_COMMAND_SECONDS.observe(time.perf_counter() - started)

    def blocking(self, timeout_s: float) -> Blocking:
        """A connection of its own for commands that wait on the server for at most `timeout_s`."""
        return Blocking(self._connect(timeout_s + self._timeout_s))

    @contextlib.asynccontextmanager
    async def pubsub(self) -> AsyncIterator[PubSub]:
        """A pub/sub connection of its own."""
        redis = aioredis.Redis.from_url(
            self._url,
            socket_connect_timeout=self._timeout_s,
            # Times are kept here, not there: redis-py would use asyncio.wait_for, which before Python 3.12 loses a
            # cancellation that comes at the wrong moment.
            socket_timeout=None,
            retry=Retry(NoBackoff(), 0),
            client_name=self._name,
            **_keep_alive_options(self._url),
            **_tls_options(self._url),
            **_UNTOLD,
        )
        try:
            yield PubSub(redis.pubsub())
        finally:
            with contextlib.suppress(redis_errors.RedisError, OSError):
                await redis.aclose()

    async def close(self) -> None:
        """Close the connection."""
        await self._connection.close()

    def _connect(self, limit_s: float) -> Connection:
        return Connection(_address(self._url), name=self._name, connect_s=self._timeout_s, limit_s=limit_s)


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


def _address(url: str) -> Address:
    told: dict[str, Any] = dict(parse_url(url))

    def tls() -> ssl.SSLContext:
        # A certificate is for a host: without a look at that, anybody's from the same authority would do.
        return RedisSSLContext(
            keyfile=told.get("ssl_keyfile"),
            certfile=told.get("ssl_certfile"),
            cert_reqs=told.get("ssl_cert_reqs", "required"),
            ca_certs=told.get("ssl_ca_certs"),
            ca_data=told.get("ssl_ca_data"),
            check_hostname=True,
        ).get()

    return Address(
        host=told.get("host", "localhost"),
        port=told.get("port", 6379),
        path=told.get("path", ""),
        db=int(told.get("db", 0)),
        user=told.get("username", ""),
        password=told.get("password", ""),
        tls=tls if url.startswith("rediss://") else None,
    )


def _keep_alive_options(url: str) -> dict[str, Any]:
    if url.startswith("unix://"):
        return {}
    return {"socket_keepalive": True, "socket_keepalive_options": keep_alive_options()}


def _tls_options(url: str) -> dict[str, Any]:
    """A certificate is for a host; redis-py would take anybody's who has one from the same authority."""
    return {"ssl_check_hostname": True} if url.startswith("rediss://") else {}


class Blocking:
    """One connection for BLPOP and the like. A call that is cancelled or fails closes it; the next opens it again."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def command(self, *parts: Value) -> Any:
        """Send one command and wait for its answer. Raises RedisAway."""
        try:
            return await self._connection.call(parts)
        except (OSError, ReplyError) as exc:
            self._connection.drop()
            raise _typed(exc) from exc
        except asyncio.CancelledError:
            self._connection.drop()  # or the server would go on waiting for us
            raise

    async def close(self) -> None:
        """Close the connection."""
        await self._connection.close()


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
    except (redis_errors.RedisError, OSError) as exc:
        raise RedisAway(f"Redis is away: {type(exc).__name__}") from exc


def _typed(exc: OSError | ReplyError) -> Exception:
    """What callers are told; `exc` itself when it is none of the usual."""
    text = str(exc)
    if isinstance(exc, OSError) or text.startswith(NOT_LET_IN):
        return RedisAway(f"Redis is away: {type(exc).__name__ if isinstance(exc, OSError) else text[:60]}")
    if text.startswith(AWAY_REPLIES):
        return RedisAway(f"Redis cannot serve now: {text.split(' ', 1)[0]}")
    if "OOM" in text[:40] or "maxmemory" in text:
        return Refused("overloaded", "the store is full; please try again in a minute", 60)
    return exc
