"""Live events of chats over pub/sub: fast, but not reliable. The chat's log is the truth."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Final

import msgspec

from shared.backoff import Backoff
from shared.errors import RedisAway
from shared.log import logger
from shared.messages.live import DeltaEvent, LiveEvent, decode_live, encode_live
from shared.metrics import FANOUT_GAPS
from shared.store import keys
from shared.store.client.pubsub import PubSub, PubSubEvent, pubsub
from shared.store.client.redis_client import RedisClient
from shared.store.delivery.outbox import NumberedLine, numbered_line
from shared.store.turns.inbox import TURNS

SILENCE_S: Final = 5.0
"""Silence after which the connection is pinged; after as long again it counts as dead."""

KEEP_MS: Final = 3_600_000
"""Time after which the record of a text goes that nobody added to. A commit deletes it."""

log = logger("fanout")

ChatNews = LiveEvent | NumberedLine
Listener = Callable[[ChatNews], None]


async def publish(client: RedisClient, session: str, event: LiveEvent) -> int:
    """Publish an event to the gateways that show the chat; return how many. Raises RedisAway."""
    receivers: int = await client.command("PUBLISH", keys.live(session), encode_live(event))
    return receivers


async def publish_text(
    client: RedisClient,
    session: str,
    fence: tuple[str, str],
    delta: DeltaEvent,
    *,
    recorded: bool,
    entry: DeltaEvent | None = None,
) -> int:
    """Publish text of a turn while its lease holds; return how many gateways show the chat, -1 once
    the lease is lost. With `recorded` it is kept, for pages that open later and for a worker that
    has to go on with the text: as the shorter `entry`, if there is one. Raises RedisAway."""
    record = "" if not recorded else "whole" if (entry or delta).full else "more"
    member, lease = fence
    receivers: int = await client.run(
        "turns/show_text",
        session=session,
        queue=TURNS,
        member=member,
        lease=lease,
        event=encode_live(delta),
        recorded=record,
        entry="" if entry is None else encode_live(entry),
        keep_ms=KEEP_MS,
    )
    return receivers


def parse_news(data: bytes) -> ChatNews | None:
    """Parse one message; None for a kind that this version does not know."""
    try:
        if data.startswith(b"{"):
            return decode_live(data)
        seq, _, line = data.partition(b" ")
        return numbered_line(seq, line)
    except (msgspec.DecodeError, ValueError):
        return None


class Fanout:
    """One pub/sub connection for a process, with listeners by Redis channel. After a break it
    reconnects by itself, subscribes again, and calls `on_gap` once (also after the first connect):
    whatever was published meanwhile is in the logs, not here."""

    def __init__(self, client: RedisClient, *, on_gap: Callable[[], Awaitable[None]]) -> None:
        self._client = client
        self._on_gap = on_gap
        self._listeners: dict[str, Callable[[bytes], None]] = {}
        self._confirming: dict[str, asyncio.Event] = {}
        self._pubsub: PubSub | None = None
        self._changed = asyncio.Event()
        self._tried: asyncio.Event | None = None
        """While `run` is active: set when the first connection is up, or has failed."""

    async def subscribe(self, channel: str, listener: Callable[[bytes], None]) -> None:
        """Subscribe to a pub/sub channel, with one listener each. Return when the server has
        confirmed, or RedisAway is known. While Redis is unavailable, and before `run`, return at
        once: the subscription is made with the next connection, before `on_gap`."""
        self._listeners[channel] = listener
        self._changed.set()
        try:
            async with asyncio.timeout(SILENCE_S):
                # The first ones would miss what is published before the connection is made.
                if self._tried is not None:
                    await self._tried.wait()
                if self._pubsub is not None:
                    confirmed = self._confirming.setdefault(channel, asyncio.Event())
                    self._pubsub.subscribe(channel)
                    await confirmed.wait()
        except (RedisAway, TimeoutError):
            return  # the reader notices too, and subscribes again

    async def follow_chat(self, session: str, listener: Listener) -> None:
        """Follow a chat: its live events, and its new lines with their numbers."""

        def tell(data: bytes) -> None:
            if (news := parse_news(data)) is not None:
                listener(news)

        await self.subscribe(keys.live(session), tell)

    async def unfollow_chat(self, session: str) -> None:
        """Stop following a chat."""
        self.unsubscribe(keys.live(session))

    def unsubscribe(self, channel: str) -> None:
        """End a subscription of `subscribe`."""
        self._listeners.pop(channel, None)
        if self._pubsub is not None:
            with contextlib.suppress(RedisAway):
                self._pubsub.unsubscribe(channel)

    async def run(self) -> None:
        """Read until cancelled; reconnect with full jitter (50 ms to 1.5 s)."""
        self._tried = tried = asyncio.Event()
        try:
            await self._keep_connected(tried)
        finally:
            self._tried = None
            # Nobody confirms any more: who waits for that goes on.
            for waiting in (tried, *self._confirming.values()):
                waiting.set()
            self._confirming.clear()

    async def _keep_connected(self, tried: asyncio.Event) -> None:
        backoff = Backoff()
        was_connected = False
        while True:
            while not self._listeners:
                self._changed.clear()
                await self._changed.wait()
            try:
                async with pubsub(self._client) as connection:
                    await self._subscribe_all(connection)
                    tried.set()
                    backoff.reset()
                    if was_connected:
                        FANOUT_GAPS.inc()
                    was_connected = True
                    # Every subscription is confirmed: nothing is missed from now on.
                    await self._on_gap()
                    await self._read_all(connection)
            # Callers that wait for the first attempt need not wait any longer.
            except RedisAway:
                self._pubsub = None
                tried.set()
                await backoff.sleep()
            finally:
                self._pubsub = None

    async def _subscribe_all(self, pubsub: PubSub) -> None:
        asked: set[str] = set()
        # Again for those who came meanwhile: `on_gap` must find everybody subscribed.
        while wanted := self._listeners.keys() - asked:
            pubsub.subscribe(*wanted)
            asked |= wanted
            self._pubsub = pubsub
            pending = set(wanted)
            while pending:
                message = await pubsub.next(SILENCE_S)
                if message is None:
                    raise RedisAway("Redis did not confirm a subscription")
                pending.discard(self._handle(message))

    async def _read_all(self, pubsub: PubSub) -> None:
        asked = False
        while await pubsub.dispatch(self._handle, SILENCE_S) or not asked:
            asked = True
            pubsub.ping()
        raise RedisAway("the pub/sub connection is silent")

    def _handle(self, event: PubSubEvent) -> str:
        if event.kind == "subscribe":
            if (confirmed := self._confirming.pop(event.channel, None)) is not None:
                confirmed.set()
        elif event.kind == "message" and event.channel in self._listeners:
            # Anyone with a user in Redis may publish anything: no message may end the process.
            try:
                self._listeners[event.channel](event.data)
            except Exception as exc:
                log.error("message not understood", bytes=len(event.data), error=type(exc).__name__)
        return event.channel
