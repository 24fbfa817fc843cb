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
    """Open a connection for subscriptions; it closes at the end of the block. Raises RedisAway."""
    wire = await client.open()
    try:
        yield PubSub(wire)
    finally:
        wire.end()


class PubSubEvent(NamedTuple):
    """An event; `kind` is `subscribe`, `unsubscribe`, `message` or `pong`."""

    kind: str
    channel: str
    data: bytes


class PubSub:
    """An open connection with subscriptions. Once it broke, every method raises RedisAway."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._loop = asyncio.get_running_loop()
        self._events: deque[list[Any]] = deque()
        self._last_event_at = self._loop.time()
        self._received = 0
        self._news = asyncio.Event()
        self._handle: Callable[[PubSubEvent], object] | None = None
        self._fault: Exception | None = None
        wire.set_listener(self._on_reply)

    def subscribe(self, *channels: str) -> None:
        """Subscribe to channels; the server confirms each by a `subscribe` event from `next`."""
        self._send("SUBSCRIBE", *channels)

    def unsubscribe(self, channel: str) -> None:
        """End the subscription to a channel."""
        self._send("UNSUBSCRIBE", channel)

    def ping(self) -> None:
        """Send a ping; the reply is a `pong` event."""
        self._send("PING")

    async def next(self, timeout_s: float) -> PubSubEvent | None:
        """Return the next event, None when none comes for `timeout_s`."""
        # Events that came before a break are still returned.
        while not self._events:
            if self._wire.lost:
                raise RedisAway("Redis is away: the pub/sub connection ended")
            self._news.clear()
            try:
                async with asyncio.timeout(timeout_s):
                    await self._news.wait()
            except TimeoutError:
                return None
        return _parse_event(self._events.popleft())

    async def dispatch(self, handle: Callable[[PubSubEvent], object], silence_s: float) -> bool:
        """Call `handle` with every event as it comes, until none comes for `silence_s`. Return
        whether any came. An exception of `handle` ends the connection and is raised."""
        self._handle, begun = handle, self._loop.time()
        # Counted, because a clock cannot tell: uvloop's has milliseconds, and a pong is faster.
        received = self._received
        self._dispatch_queued()
        # Every event moves the deadline.
        while (left_s := max(begun, self._last_event_at) + silence_s - self._loop.time()) > 0:
            self._news.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(left_s):
                    if not self._wire.lost:
                        await self._news.wait()
            if self._fault is not None:
                raise self._fault
            if self._wire.lost:
                raise RedisAway("Redis is away: the pub/sub connection ended")
        return self._received > received

    def _dispatch_queued(self) -> None:
        assert self._handle is not None
        try:
            # Not after a break: the server may be the primary no more, and a gap is read from the
            # log.
            while self._events and not self._wire.lost:
                self._handle(_parse_event(self._events.popleft()))
        except Exception as exc:
            # The first fault is the cause; the ones after it are its consequences.
            self._fault = self._fault or exc
            self._wire.end()

    def _send(self, *words: str) -> None:
        if self._wire.lost:
            raise RedisAway("Redis is away: the pub/sub connection ended")
        self._wire.send_command(words)

    def _on_reply(self, answer: Any) -> None:
        # None means that the connection ended. An error reply ends it.
        if isinstance(answer, list):
            self._last_event_at = self._loop.time()
            self._received += 1
            if self._handle is not None and not self._events:
                # Not now: the answer to a command comes before what it published, and is first.
                self._loop.call_soon(self._dispatch_queued)
            self._events.append(answer)
            if self._handle is not None:
                return
        elif answer is not None:
            self._wire.end()
        self._news.set()


def _parse_event(answer: list[Any]) -> PubSubEvent:
    kind, *rest = answer
    channel, data = rest if len(rest) == 2 else (b"", rest[-1])
    text = data if isinstance(data, bytes) else b""
    return PubSubEvent(kind.decode(), (channel or b"").decode(errors="replace"), text)
