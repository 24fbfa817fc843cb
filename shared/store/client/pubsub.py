"""Pub/sub over a connection of its own."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator, Callable
from typing import Any, NamedTuple

from shared.errors import RedisAway
from shared.store.client.connection import Wire
from shared.store.client.redis_client import RedisClient


@contextlib.asynccontextmanager
async def pubsub(client: RedisClient) -> AsyncIterator[PubSub]:
    """A connection that subscribes, until the end of the block. Raises RedisAway."""
    wire = await client.open()
    try:
        yield PubSub(wire)
    finally:
        wire.end()


class Heard(NamedTuple):
    """Something that came over a pub/sub connection: `kind` is `subscribe`, `unsubscribe`,
    `message` or `pong`."""

    kind: str
    channel: str
    data: bytes


class PubSub:
    """An open connection that subscribes. Every method raises RedisAway when it broke; it is of no
    use then."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._loop = asyncio.get_running_loop()
        self._heard: deque[list[Any]] = deque()
        self._heard_at = self._loop.time()
        self._news = asyncio.Event()
        self._handle: Callable[[Heard], object] | None = None
        self._fault: Exception | None = None
        wire.listen(self._take)

    def subscribe(self, *channels: str) -> None:
        """Ask for these channels; the server confirms each by a `subscribe` that `next` returns."""
        self._tell("SUBSCRIBE", *channels)

    def unsubscribe(self, channel: str) -> None:
        """Ask to hear no more of it."""
        self._tell("UNSUBSCRIBE", channel)

    def ping(self) -> None:
        """Ask for a `pong`."""
        self._tell("PING")

    async def next(self, timeout_s: float) -> Heard | None:
        """The next thing the server says, None if it says nothing for `timeout_s`."""
        while not self._heard:
            if self._wire.lost:
                raise RedisAway("Redis is away: the pub/sub connection ended")
            self._news.clear()
            try:
                async with asyncio.timeout(timeout_s):
                    await self._news.wait()
            except TimeoutError:
                return None
        return _read(self._heard.popleft())

    async def hand_on(self, handle: Callable[[Heard], object], silence_s: float) -> bool:
        """Call `handle` with everything as it comes, until nothing comes for `silence_s`; whether
        anything did. What `handle` raises ends the connection, and is raised."""
        self._handle, begun = handle, self._loop.time()
        self._hand_on()
        while (left_s := max(begun, self._heard_at) + silence_s - self._loop.time()) > 0:
            self._news.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(left_s):
                    if not self._wire.lost:
                        await self._news.wait()
            if self._fault is not None:
                raise self._fault
            if self._wire.lost:
                raise RedisAway("Redis is away: the pub/sub connection ended")
        return self._heard_at > begun

    def _hand_on(self) -> None:
        assert self._handle is not None
        try:
            while self._heard:
                self._handle(_read(self._heard.popleft()))
        except Exception as exc:
            self._fault = self._fault or exc
            self._wire.end()

    def _tell(self, *words: str) -> None:
        if self._wire.lost:
            raise RedisAway("Redis is away: the pub/sub connection ended")
        self._wire.tell(words)

    def _take(self, answer: Any) -> None:
        """An answer of the server; None when there will be no more. A refusal ends the
        connection."""
        if isinstance(answer, list):
            self._heard_at = self._loop.time()
            if self._handle is not None and not self._heard:
                # Not now: the answer to a command came before what that command published, and is
                # acted on first.
                self._loop.call_soon(self._hand_on)
            self._heard.append(answer)
            if self._handle is not None:
                return
        elif answer is not None:
            self._wire.end()
        self._news.set()


def _read(answer: list[Any]) -> Heard:
    kind, *rest = answer
    channel, data = rest if len(rest) == 2 else (b"", rest[-1])
    return Heard(kind.decode(), (channel or b"").decode(), data if isinstance(data, bytes) else b"")
