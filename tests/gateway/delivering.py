"""The way out of one channel in a test: a platform in memory, an egress, and a worker that answers."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from itertools import count
from pathlib import Path
from typing import Any, Final

from gateway.delivery.egress import Egress
from gateway.platform.protocol import ChannelBroken
from shared.errors import RedisAway
from shared.media.store import MediaStore
from shared.messages.inbound import InboundMessage
from shared.settings import DeliverySettings, MediaSettings
from shared.store import keys
from shared.store.client.redis_client import RedisClient
from shared.store.delivery.deliveries import DeliveryQueue
from shared.store.delivery.fanout import Fanout
from shared.store.turns.inbox import Inbox
from shared.tasks import cancel_all
from tests.contracts.channels.echo import Echo
from tests.contracts.channels.stage import MortalClient
from tests.gateway.puddle import Puddle
from tests.helpers.wait import eventually

SOON_S: Final = 60.0

_ids = count(1)


class Delivering:
    """`puddle` gets the replies to what is said; `worker` makes them."""

    def __init__(
        self,
        client: MortalClient,
        puddle: Puddle,
        worker: Echo,
        media: Path,
        settings: DeliverySettings,
        *,
        lease_s: float,
    ) -> None:
        self.client = client
        self.puddle = puddle
        self.worker = worker
        self.media = MediaStore(MediaSettings(dir=media))
        self.draining = asyncio.Event()
        self.broken: list[ChannelBroken] = []
        unclear = puddle.abilities.resend_guard
        self.deliveries = DeliveryQueue(client, puddle.name, lease_s=lease_s, resend_guard=unclear)
        self._fanout = Fanout(client, on_gap=self._look_again)
        self.egress = Egress(
            puddle,
            self.deliveries,
            self._fanout,
            settings,
            self.media,
            draining=self.draining,
            on_broken=self.broken.append,
        )
        self._inbox = Inbox(client)
        self._hearing = asyncio.create_task(self._fanout.run())
        self.running = asyncio.create_task(self.egress.run())

    async def _look_again(self) -> None:
        await self.egress.recheck()

    async def say(self, text: str, chat: str = "a", metadata: dict[str, str] | None = None) -> str:
        """Somebody says something; the session."""
        said = InboundMessage(
            channel=self.puddle.name,
            chat_id=chat,
            sender_id="ada",
            id=f"d{next(_ids)}",
            content=text,
            timestamp=1,
            metadata=metadata or {},
        )
        await self._inbox.ingest(said, internal=bool(metadata))
        return said.session

    async def sees(self, *texts: str) -> None:
        """Wait until exactly these stand in the puddle."""
        await eventually(
            lambda: self.puddle.texts == list(texts), within_s=SOON_S, what=f"{texts!r} ({self.puddle.texts!r})"
        )

    async def until(self, check: Any, what: str) -> None:
        await eventually(check, within_s=SOON_S, what=what)

    async def quiet(self) -> bool:
        """Whether nothing is left to deliver."""
        name = self.puddle.name
        with contextlib.suppress(RedisAway):
            found = await self.client.pipeline([("ZCARD", keys.outqueue(name)), ("HLEN", keys.outleases(name))])
            return found == [0, 0]
        return False

    async def close(self) -> None:
        self.draining.set()
        await asyncio.wait({self.running})
        await cancel_all([self._hearing])


@contextlib.asynccontextmanager
async def delivering(
    redis_url: str, media: Path, *, chats: int = 50, call_s: float = 5.0, lease_s: float = 3.0, **abilities: Any
) -> AsyncIterator[Delivering]:
    """An egress that runs, and is drained at the end."""
    client, worker = MortalClient(redis_url, timeout_s=1.0), Echo(redis_url)
    worker.start()
    settings = DeliverySettings(chats=chats, call_s=call_s)
    made = Delivering(client, Puddle(**abilities), worker, media, settings, lease_s=lease_s)
    try:
        yield made
        assert made.draining.is_set() or not made.running.done()
    finally:
        await made.close()
        await worker.close()
        await client.close()


async def dead_letters(client: RedisClient) -> list[str]:
    """The reasons of all there are."""
    found = await client.command("XRANGE", keys.DEAD, "-", "+")
    return [dict(zip(row[1][::2], row[1][1::2], strict=True))[b"reason"].decode() for row in found]
