"""What a test asks a running fleet."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import psutil

from shared.chatlog.live_text import LiveText
from shared.messages.live import DeltaEvent, TurnEvent
from shared.messages.outbound import OutboundMessage
from shared.messages.transcript import TranscriptEntry, decode_transcript
from shared.store import keys
from shared.store.client.redis_client import RedisClient
from shared.store.delivery.fanout import ChatNews, Fanout
from shared.store.delivery.outbox import Outbox
from shared.store.fleet.presence import Presence, list_processes
from tests.helpers.processes import Process
from tests.helpers.wait import eventually


class Seen:
    """What happened in a chat, with the time at which it was heard."""

    def __init__(self) -> None:
        self.news: list[tuple[float, ChatNews]] = []

    def add(self, news: ChatNews) -> None:
        self.news.append((time.monotonic(), news))

    def deltas(self, attempt: int | None = None) -> list[DeltaEvent]:
        return [n for _, n in self.news if isinstance(n, DeltaEvent) and attempt in (None, n.attempt)]

    def grown_at(self, attempt: int) -> float:
        """When an attempt showed the first letter that people had not seen; 0 if it did not."""
        live = LiveText()
        for at, delta in self.news:
            if isinstance(delta, DeltaEvent):
                before = len(live.shown)
                live.add(delta)
                if delta.attempt == attempt and len(live.shown) > before:
                    return at
        return 0.0

    def shown(self) -> list[str]:
        """What stood on a screen, from delta to delta."""
        live = LiveText()
        return [live.shown for _, delta in self.news if isinstance(delta, DeltaEvent) and live.add(delta)]

    def started_at(self, attempt: int) -> float:
        """When an attempt was announced; 0 if it was not."""
        for at, news in self.news:
            if isinstance(news, TurnEvent) and news.state == "started" and news.attempt == attempt:
                return at
        return 0.0


@asynccontextmanager
async def watching(client: RedisClient, session: str) -> AsyncIterator[Seen]:
    """Hear a chat as a gateway does."""
    seen = Seen()
    ready = asyncio.Event()

    async def connected() -> None:
        ready.set()

    fanout = Fanout(client, on_gap=connected)
    await fanout.follow_chat(session, seen.add)
    task = asyncio.create_task(fanout.run())
    await ready.wait()
    try:
        yield seen
    finally:
        task.cancel()


async def replies(client: RedisClient, session: str) -> list[str]:
    """The texts of all replies in a chat, in order."""
    lines = await Outbox(client).read_after(session, after=0, limit=2000)
    return [line.line.content for line in lines if isinstance(line.line, OutboundMessage)]


async def history(client: RedisClient, session: str) -> list[TranscriptEntry]:
    """The saved conversation."""
    return [decode_transcript(entry) for entry in await client.command("LRANGE", keys.history(session), 0, -1)]


async def workers(client: RedisClient, many: int, *, within_s: float = 60) -> list[Presence]:
    """Wait until so many workers are there."""

    async def there() -> list[Presence]:
        found = [p for p in await list_processes(client) if p.kind == "worker"]
        return found if len(found) >= many else []

    return await eventually(there, within_s=within_s, every_s=0.05, what=f"{many} workers")


async def warm(*fleet: Process) -> None:
    """Wait until these workers have imported what their model needs: on a small machine that takes seconds."""
    await eventually(lambda: all("model ready" in worker.log for worker in fleet), within_s=60, every_s=0.05)


async def holder(client: RedisClient, session: str) -> psutil.Process:
    """The worker process that holds the lease of a session."""

    async def held() -> psutil.Process | None:
        lease = await client.command("HGET", keys.leases("turns"), keys.turn(session))
        if lease is None:
            return None
        owner = lease.decode().partition(":")[0]
        for presence in await list_processes(client):
            if presence.kind == "worker" and owner.startswith(presence.name):
                with contextlib.suppress(psutil.NoSuchProcess):
                    return psutil.Process(presence.pid)
        return None

    return await eventually(held)
