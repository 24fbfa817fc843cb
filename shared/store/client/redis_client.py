"""Client for Redis: commands, scripts, and typed errors."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from typing import Any, Final, TypeVar
from weakref import WeakSet

from shared.backoff import Backoff
from shared.errors import RedisAway, Refused
from shared.log import logger
from shared.metrics import REDIS_COMMAND_SECONDS
from shared.store import keys
from shared.store.client.address import Locator, read_address
from shared.store.client.cluster import ClusterNodes
from shared.store.client.connection import MOVED, NOT_LET_IN, RedisConnection, ReplyError, Wire, WrongServer
from shared.store.client.connection import Value as Value
from shared.store.client.durable import WAIT_S, DurableWrites
from shared.store.client.scripts import AWAY_REPLIES, Script, load, sha
from shared.store.client.sentinels import Sentinels
from shared.tasks import close_all

T = TypeVar("T")

log = logger("redis")

SOCKET_TIMEOUT_S: Final = 2.0

BUSY: Final = "BUSY "
"""Beginning of every reply while a script has run for longer than `busy-reply-threshold`."""

KILLED: Final = "SCRIPT KILL"
"""Part of the error of a script that was ended. It had written nothing, so it can be sent again."""

WRONG_TYPE: Final = "WRONGTYPE"
BROKEN_CHAT: Final = "BROKEN"
"""Beginning of the error of `check_type` in `lua/lib/base.lua`."""


class RedisClient:
    """One connection to one Redis, shared by a process. Every method raises RedisAway when the
    server is unavailable or a replica, Refused("overloaded") when it has no memory for new data,
    and ReplyError for any other error; `run` and `command` raise Refused("broken") when a key of
    one chat is of another type. After RedisAway, or a cancelled call, the command may or may not
    have happened; every script can be sent again. Durable scripts return when `copies` servers have
    what they wrote."""

    def __init__(self, url: str, *, timeout_s: float = SOCKET_TIMEOUT_S, name: str = "shoal", copies: int = 1) -> None:
        address = read_address(url)
        self._name = name
        self._timeout_s = timeout_s
        self._wires = WeakSet[Wire]()
        self.locator = Locator(address)
        if address.sentinels or address.nodes:
            finder = Sentinels if address.sentinels else ClusterNodes
            self.locator = finder(address, name=name, timeout_s=timeout_s, on_move=self._leave)
        self.arq = keys.ARQ_ON_CLUSTER if address.nodes else keys.ARQ
        self._connection = self._connect(2 * timeout_s)
        self.copies = copies
        self._durable: DurableWrites | None = None
        if copies > 1:
            # WAIT holds up every command after it, so it has a connection of its own.
            connection = self._connect(2 * timeout_s + WAIT_S)
            self._durable = DurableWrites(connection, copies, is_primary=self.locator.sees_primary)

    @property
    def user(self) -> str:
        """User name of the address, '' if it has none."""
        return self.locator.address.user

    def run(
        self,
        name: str,
        /,
        *,
        session: str | None = None,
        queue: str | None = None,
        channel: str | None = None,
        retry_for_s: float = 0.0,
        **values: Value,
    ) -> Coroutine[Any, Any, Any]:
        """Run the script `lua/<name>.lua` by its hash, and send its source when the server does not
        know it (after a restart or a fail-over). `values` are its keys and arguments by name; for
        `session`, `queue` and `channel` see `Script.words`. `retry_for_s`: see `with_retries`."""
        return self.run_with(name, values, keys.Whose(session, queue, channel), retry_for_s=retry_for_s)

    async def run_with(
        self,
        name: str,
        values: Mapping[str, Value],
        whose: keys.Whose,
        *,
        retry_for_s: float = 0.0,
    ) -> Any:
        """Do what `run` does, with the keys and arguments in a mapping."""
        script = load(name, arq=self.arq)
        call = self.words(name, values, whose)
        if retry_for_s:
            return await with_retries(lambda: self.evaluate(script, call), retry_for_s)
        return await self.evaluate(script, call)

    def words(self, name: str, values: Mapping[str, Value], whose: keys.Whose) -> tuple[Value, ...]:
        """Return what EVAL takes behind the source of a script: see `Script.words`."""
        on_cluster = (keys.META, keys.NO_KEY) if self.locator.address.nodes else ()
        return load(name).words(values, whose, on_cluster=on_cluster)

    async def evaluate(self, script: Script, call: tuple[Value, ...]) -> Any:
        """Run a script with the number of its keys, its keys and its arguments, as EVAL takes
        them."""
        command = self.confirmed if script.durable else self.command
        try:
            return await command("EVALSHA", sha(script), *call)
        except ReplyError as exc:
            if not unknown_script(exc):
                raise
            # EVAL also loads the script, so the next call by hash finds it.
            return await command("EVAL", script.source, *call)

    async def command(self, *parts: Value) -> Any:
        """Send one command and return its reply, texts as bytes."""
        return await self._call(self._connection.call, parts)

    async def confirmed(self, *parts: Value) -> Any:
        """Send one command and return its reply when `copies` servers have all that this server had
        when it answered. With one copy this is `command`."""
        if self._durable is None:
            return await self.command(*parts)
        return await self._call(self._durable.call, parts)

    async def settled(self) -> None:
        """Return when `copies` servers have all that was read so far. Raises RedisAway."""
        if self._durable is not None:
            await self.confirmed("PING")

    async def _call(self, call: Callable[[tuple[Value, ...]], Awaitable[Any]], parts: tuple[Value, ...]) -> Any:
        started = time.perf_counter()
        try:
            return await call(parts)
        except (OSError, ReplyError) as exc:
            raise await self._explain(exc, [parts]) from exc
        finally:
            REDIS_COMMAND_SECONDS.observe(time.perf_counter() - started)

    async def pipeline(self, commands: Sequence[Sequence[Value]]) -> list[Any]:
        """Send independent commands in one round trip. Raises the first error among the replies."""
        started = time.perf_counter()
        try:
            return await self._connection.calls(commands)
        except (OSError, ReplyError) as exc:
            raise await self._explain(exc, commands) from exc
        finally:
            REDIS_COMMAND_SECONDS.observe(time.perf_counter() - started)

    async def check_role(self) -> None:
        """Raise RedisAway unless the server is there and is a primary. A server that was demoted
        answers PING and reads as before."""
        try:
            await self._connection.check_role()
        except OSError as exc:
            raise map_error(exc) from exc

    async def scan(self, command: str, *key: str, match: str = "*", count: int = 500) -> AsyncIterator[list[bytes]]:
        """Yield the pages of SCAN, or HSCAN or ZSCAN of `key`. Entries may repeat."""
        cursor = b"0"
        while True:
            cursor, page = await self.command(command, *key, cursor, "MATCH", match, "COUNT", count)
            yield page
            if cursor == b"0":
                return

    def blocking(self, timeout_s: float) -> BlockingConnection:
        """Return a connection for commands that block for at most `timeout_s`."""
        return BlockingConnection(self._connect(timeout_s + self._timeout_s))

    async def open(self) -> Wire:
        """Open a connection that the caller owns and closes. Raises RedisAway."""
        try:
            return await self._connection.open()
        except (OSError, ReplyError) as exc:
            raise map_error(exc) from exc

    async def close(self) -> None:
        """Close the connection."""
        durable = [] if self._durable is None else [self._durable.close]
        await close_all(*durable, self._connection.close, self.locator.close)

    def _leave(self) -> None:
        for wire in [*self._wires][:1]:
            wire.leave(WrongServer(MOVED))

    async def _explain(self, exc: OSError | ReplyError, commands: Sequence[Sequence[Value]]) -> Exception:
        """Map an error of `commands`: Refused when a key of one chat that they name has another
        type."""
        error = map_error(exc)
        if str(exc).startswith(BUSY):
            await self._kill_script()
        if error is exc and WRONG_TYPE in str(exc):
            words = (word for parts in commands for word in parts if isinstance(word, str))
            own = {word: kind.type for word in words if isinstance(kind := keys.family(word), keys.OwnKeys)}
            with contextlib.suppress(OSError):
                types = await self._connection.answers([("TYPE", name) for name in own])
                found = zip(own.values(), types, strict=True)
                if any(isinstance(type, bytes) and type.decode() not in (wanted, "none") for wanted, type in found):
                    return _broken_chat()
        return error

    async def _kill_script(self) -> None:
        """End the script that holds the server up. None of ours runs for so long."""
        # It may have ended by itself, have written (then only an operator can end it), or be
        # another process's to end by now; an older list of users may not allow it.
        with contextlib.suppress(OSError, ReplyError):
            await self._connection.call(("SCRIPT", "KILL"))
            log.error("script ended that held Redis up", user=self.user)

    def _connect(self, limit_s: float) -> RedisConnection:
        name = self._name
        connect_s = self._timeout_s
        wires = self._wires
        return RedisConnection(self.locator, name=name, connect_s=connect_s, limit_s=limit_s, wires=wires)


class BlockingConnection:
    """A connection for blocking commands. A cancelled or failed call closes it; the next opens
    it."""

    def __init__(self, connection: RedisConnection) -> None:
        self._connection = connection

    async def commands(self, commands: Sequence[Sequence[Value]]) -> list[Any]:
        """Send several commands together and return their replies, errors among them. The server
        starts each one when the one before has finished, including its wait. Raises RedisAway."""
        try:
            answers = await self._connection.answers(commands)
        except OSError as exc:
            # The replies of a half-read batch would be taken for those of the next command.
            self._connection.drop()
            raise map_error(exc) from exc
        except asyncio.CancelledError:
            self._connection.drop()  # or the server would go on waiting for us
            raise
        for answer in answers:
            # An error of one command is returned: the others count.
            if not isinstance(answer, ReplyError) or (away := map_error(answer)) is answer:
                continue
            if isinstance(away, RedisAway):
                self._connection.drop()
                raise away
        return answers

    async def close(self) -> None:
        """Close the connection."""
        await self._connection.close()


def _broken_chat() -> Refused:
    advice = "this chat is damaged in the store; others are not. Please tell whoever runs this service"
    return Refused("broken", advice, 60)


def pairs(flat: Sequence[Any]) -> Iterator[tuple[Any, Any]]:
    """Pair names and values of a flat reply."""
    return zip(flat[::2], flat[1::2], strict=True)


def server_ms(time: Sequence[bytes]) -> int:
    """Return the reply to TIME in ms."""
    return int(time[0]) * 1000 + int(time[1]) // 1000


def unknown_script(error: object) -> bool:
    """Tell whether an error reply means that the server has no script with this hash."""
    return isinstance(error, ReplyError) and str(error).startswith("NOSCRIPT")


async def with_retries(ask: Callable[[], Awaitable[T]], for_s: float) -> T:
    """Return the result of `ask`; repeat it, with jitter, while Redis is away, at most `for_s`."""
    give_up_at = time.monotonic() + for_s
    backoff = None
    while True:
        try:
            return await ask()
        except ReplyError:
            raise  # the same call gets the same reply
        except RedisAway:
            backoff = backoff or Backoff()
            wait_s = next(backoff)
            if time.monotonic() + wait_s >= give_up_at:
                raise
            await asyncio.sleep(wait_s)


def map_error(exc: OSError | ReplyError) -> Exception:
    """Map an error of the connection to the one that callers handle; return any other unchanged."""
    # Error replies begin with their kind in capitals.
    text = str(exc)
    if isinstance(exc, WrongServer):
        return RedisAway(text)
    if isinstance(exc, OSError) or text.startswith(NOT_LET_IN):
        return RedisAway(f"Redis is away: {type(exc).__name__ if isinstance(exc, OSError) else text[:60]}")
    if text.startswith(BROKEN_CHAT):
        return _broken_chat()
    if text.startswith(AWAY_REPLIES) or KILLED in text:
        why = ": a script runs for too long, see ShoalRedisAway in the runbook" if text.startswith(BUSY) else ""
        return RedisAway(f"Redis cannot serve now: {text.split(' ', 1)[0]}{why}")
    # Not the name alone: a server that has no CONFIG repeats what it was asked for.
    if "OOM" in text[:40] or "memory > 'maxmemory'" in text:
        return Refused("overloaded", "the store is full; please try again in a minute", 60)
    return exc
