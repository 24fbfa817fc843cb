"""Batches of commits: turns that end at the same moment share one script call."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import chain
from typing import Final, NamedTuple

from shared.ids import KEEP_MS
from shared.store import keys
from shared.store.client.connection import ReplyError
from shared.store.client.redis_client import RedisClient, Value
from shared.store.turns.inbox import TURNS, InboxLimits

AT_ONCE: Final = 64  # turns in one call; the server does nothing else meanwhile
AT_ONCE_BYTES: Final = 256 * 1024
"""Bytes of entries and lines in one call; a turn with more goes alone."""

_KEYS: Final = (keys.queue(TURNS), keys.leases(TURNS), keys.wake(TURNS), keys.DEAD, keys.IDLE)


class _End(NamedTuple):
    """Commit of one turn: arguments of commit.lua, its entries and lines, and its future reply."""

    args: Sequence[Value]
    brought: Sequence[bytes]
    answer: asyncio.Future[list[int]]


class CommitBatcher:
    """Batches all commits of one event-loop iteration into one script call, which costs little
    more than a single commit. Each commit still succeeds or fails on its own."""

    def __init__(self, client: RedisClient, limits: InboxLimits, history_bytes: int) -> None:
        self._client = client
        kept = limits.session_ms, limits.log_ms, limits.idle_ms
        self._of_all: list[Value] = [*kept, KEEP_MS, KEEP_MS, 0, history_bytes]
        self._waiting: list[_End] = []
        self._sending: set[asyncio.Task[None]] = set()

    async def send(self, args: Sequence[Value], brought: Sequence[bytes]) -> list[int]:
        """Commit one turn and return the reply of commit.lua. Raises RedisAway, ReplyError."""
        loop = asyncio.get_running_loop()
        if not self._waiting:
            # Everything that is committed until the loop gets here goes into the same call.
            loop.call_soon(self._go)
        end = _End(args, brought, loop.create_future())
        self._waiting.append(end)
        return await end.answer

    def _go(self) -> None:
        waiting, self._waiting = self._waiting, []
        batch: list[_End] = []
        size = 0
        for end in waiting:
            # A batch ends before it exceeds a limit: one large turn never delays small ones much.
            more = sum(map(len, end.brought))
            if batch and (size + more > AT_ONCE_BYTES or len(batch) == AT_ONCE):
                self._start(batch)
                batch, size = [], 0
            size += more
            batch.append(end)
        self._start(batch)

    def _start(self, batch: list[_End]) -> None:
        sending = asyncio.create_task(self._send(batch))
        # The event loop keeps only weak references to tasks.
        self._sending.add(sending)
        sending.add_done_callback(self._sending.discard)

    async def _send(self, batch: list[_End]) -> None:
        answers: Sequence[list[int] | Exception]
        try:
            values = chain(*(end.args for end in batch), *(end.brought for end in batch))
            args = [len(batch), *self._of_all, *values]
            answers = [
                ReplyError(answer[1].decode(errors="replace")) if answer[0] == -2 else answer
                for answer in await self._client.run("turns/commit", _KEYS, args)
            ]
        # The connection closes: those who wait must not wait for ever.
        except asyncio.CancelledError:
            for end in batch:
                end.answer.cancel()
            raise
        # The call as a whole failed, so it failed for every turn in it; each may be sent again.
        except Exception as exc:
            answers = [exc] * len(batch)
        for end, answer in zip(batch, answers, strict=True):
            if end.answer.done():
                continue  # its turn was cancelled
            if isinstance(answer, Exception):
                end.answer.set_exception(answer)
            else:
                end.answer.set_result(answer)
