"""Writes that count only when `redis.copies` servers have them. A fail-over then loses nothing that
was reported as done, and a former primary that lives on can confirm nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final, NamedTuple

from shared.errors import RedisAway, ReplyError
from shared.log import logger
from shared.metrics import REDIS_SHORT_WRITES
from shared.store import keys
from shared.store.client.connection import RedisConnection, Value
from shared.tasks import cancel_all, close_all

WAIT_S: Final = 0.5
"""Longest wait for the replicas. Nothing else is sent on the connection meanwhile."""

CHECK_S: Final = 0.5
MISSING_S: Final = 3.0
"""Time for which the same replicas must be missing before writes count without them. It is longer
than FRESH_MS of `sentinels.py`: Sentinels that lost the primary together with us, or instead of us,
know that by then."""

LAG_S: Final = 2  # a replica reports every second
KEEP_MS: Final = 30 * 86_400_000

for outcome in ("accepted", "refused"):
    REDIS_SHORT_WRITES.labels(outcome)  # 0 from the start: a rate needs a first value

log = logger("redis")


class _Call(NamedTuple):
    parts: tuple[Value, ...]
    reply: asyncio.Future[Any]


class DurableWrites:
    """Sends everything of one iteration of the event loop together, followed by one WAIT. What
    comes while a batch is under way makes the next one.

    Replicas that stay away make writes fail, until for MISSING_S the same ones were missing and
    `is_primary` finds a majority that still sees this primary. Then the ones that are left suffice;
    that is checked again all the time."""

    def __init__(self, connection: RedisConnection, copies: int, *, is_primary: Callable[[], Awaitable[bool]]) -> None:
        self._connection = connection
        self._replicas = self._needed = copies - 1
        self._is_primary = is_primary
        self._calls: list[_Call] = []
        self._sending: asyncio.Task[None] | None = None
        self._watching: asyncio.Task[None] | None = None

    async def call(self, parts: tuple[Value, ...]) -> Any:
        """Send one command; return its reply once enough servers have all that it wrote, and all
        that was written before. Raises RedisAway, ReplyError, OSError; it may have happened
        then."""
        call = _Call(parts, asyncio.get_running_loop().create_future())
        self._calls.append(call)
        if self._sending is None:
            # It begins in the next iteration: what is called in this one goes along.
            self._sending = asyncio.create_task(self._send_all())
        return await call.reply

    async def close(self) -> None:
        """Close the connection; calls under way fail."""
        tasks = [task for task in (self._sending, self._watching) if task is not None]
        await close_all(partial(cancel_all, tasks), self._connection.close)

    async def _send_all(self) -> None:
        batch: list[_Call] = []
        try:
            while self._calls:
                batch = self._calls
                self._calls = []
                try:
                    replies = await self._send([call.parts for call in batch])
                except Exception as exc:  # for every caller; each may send its own again
                    replies = [exc] * len(batch)
                for call, reply in zip(batch, replies, strict=True):
                    if call.reply.done():
                        continue  # its caller was cancelled
                    if isinstance(reply, Exception):
                        call.reply.set_exception(reply)
                    else:
                        call.reply.set_result(reply)
        finally:
            self._sending = None
            for call in (*batch, *self._calls):
                if not call.reply.done():
                    call.reply.set_exception(ConnectionAbortedError("closed"))

    async def _send(self, commands: list[tuple[Value, ...]]) -> list[Any]:
        needed = self._needed
        *replies, mark, have, _ = await self._connection.answers([*commands, *self._mark(needed)])
        if isinstance(mark, ReplyError):
            # A full server refuses INCR, but not the scripts that make room, nor this.
            room = [("PEXPIRE", keys.CONFIRMED, KEEP_MS), *self._mark(needed)[1:]]
            mark, have, _ = await self._connection.answers(room)
        if isinstance(have, ReplyError):
            raise RedisAway(f"Redis cannot tell which servers have a write (redis.copies): {have}")
        if not mark or isinstance(mark, ReplyError) or have < needed:
            if self._watching is None:
                self._watching = asyncio.create_task(self._watch())
            REDIS_SHORT_WRITES.labels("refused").inc(len(commands))
            raise RedisAway(f"{have + 1} of {self._replicas + 1} servers have the last writes (redis.copies)")
        if needed < self._replicas:
            REDIS_SHORT_WRITES.labels("accepted").inc(len(commands))
        return replies

    async def _watch(self) -> None:
        """Decide which replicas a write needs, from the first that was missing until all are
        back."""
        loop = asyncio.get_running_loop()
        seen = -1
        since = 0.0
        try:
            while True:
                left = await self._replicas_left()
                if left >= self._replicas:
                    if await self._all_have():
                        break
                    left = self._replicas - 1  # back, but not in step yet, or too slow
                # A further loss begins its own time: the Sentinels may not know of it yet.
                if left != seen:
                    seen = left
                    since = loop.time()
                waited = left >= 0 and loop.time() - since >= MISSING_S
                self._need(left if waited and await self._is_primary() else self._replicas)
                await asyncio.sleep(CHECK_S)
        finally:
            self._need(self._replicas)
            self._watching = None

    async def _all_have(self) -> bool:
        """Tell whether all replicas have what the server has now."""
        try:
            mark, have, _ = await self._connection.answers(self._mark(self._replicas))
        except OSError:
            return False
        return not isinstance(mark, ReplyError) and have >= self._replicas

    @staticmethod
    def _mark(replicas: int) -> list[tuple[Value, ...]]:
        # WAIT waits for the last write of its own connection, and a repeated script writes nothing:
        # its first call may have gone to a replica that is not there. INCR always writes, after it.
        # Valkey's replica answers over a connection with Nagle's algorithm: of two answers in a
        # short time, the second waits for the TCP acknowledgement of the first, which Linux delays
        # by 40 ms unless something is sent. PUBLISH goes to the replicas, too, and is no write to
        # the log.
        return [("INCR", keys.CONFIRMED), ("WAIT", replicas, int(WAIT_S * 1000)), ("PUBLISH", keys.live(""), "")]

    def _need(self, replicas: int) -> None:
        if replicas != self._needed:
            self._needed = replicas
            doing = "waiting for all again" if replicas == self._replicas else "counting writes with those left"
            log.warning("copies of writes changed", copies=replicas + 1, wanted=self._replicas + 1, doing=doing)

    async def _replicas_left(self) -> int:
        """Count the replicas that follow the primary; -1 when it does not answer."""
        try:
            info: bytes = await self._connection.call(("INFO", "replication"))
        except (OSError, ReplyError):
            return -1
        count = 0
        for line in info.decode(errors="replace").splitlines():
            name, _, facts = line.partition(":")
            values = dict(pair.partition("=")[::2] for pair in facts.split(","))
            if name.startswith("slave") and values.get("state") == "online":
                # A replica that was stopped stays in the list for a minute.
                count += int(values.get("lag", 0)) <= LAG_S
        return count
