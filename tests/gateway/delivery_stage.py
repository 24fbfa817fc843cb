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
from shared.settings import MediaSettings
from shared.settings.sections.gateways import DeliverySettings
from shared.store import keys
from shared.store.client.redis_client import RedisClient
from shared.store.delivery.deliveries import DeliveryQueue
from shared.store.delivery.fanout import Fanout
from shared.store.turns.inbox import Inbox
from shared.tasks import cancel_all
from tests.contracts.channels.echo import Echo
from tests.contracts.channels.stage import MortalClient
from tests.gateway.fake_platform import FakePlatform
from tests.helpers.wait import eventually

SOON_S: Final = 60.0

_ids = count(1)


class DeliveryStage:
    """`platform` gets the replies to the messages of `say`; `worker` makes them."""

    def __init__(
        self,
        client: MortalClient,
        platform: FakePlatform,
        worker: Echo,
        media: Path,
        settings: DeliverySettings,
        *,
        lease_s: float,
    ) -> None:
        self.client = client
        self.platform = platform
        self.worker = worker
        self.media = MediaStore(MediaSettings(dir=media))
        self.draining = asyncio.Event()
        self.broken: list[ChannelBroken] = []
        unclear = platform.abilities.resend_guard
        self.deliveries = DeliveryQueue(client, platform.name, lease_s=lease_s, resend_guard=unclear)
        self._fanout = Fanout(client, on_gap=self._look_again)
        self.egress = Egress(
            platform,
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
        message = InboundMessage(
            channel=self.platform.name,
            chat_id=chat,
            sender_id="ada",
            id=f"d{next(_ids)}",
            content=text,
            timestamp=1,
            metadata=metadata or {},
        )
        await self._inbox.ingest(message, internal=bool(metadata))
        return message.session

    async def receives(self, *texts: str) -> None:
        """Wait until the platform shows exactly these texts."""
        await eventually(
            lambda: self.platform.texts == list(texts),
            within_s=SOON_S,
            what=lambda: f"{texts!r} ({self.platform.texts!r})",
        )

    async def until(self, check: Any, what: str) -> None:
        await eventually(check, within_s=SOON_S, what=what)

    async def quiet(self) -> bool:
        """Whether nothing is left to deliver."""
        name = self.platform.name
        with contextlib.suppress(RedisAway):
            found = await self.client.pipeline([("ZCARD", keys.outqueue(name)), ("HLEN", keys.outleases(name))])
            return found == [0, 0]
        return False

    async def close(self) -> None:
        self.draining.set()
        await asyncio.wait({self.running})
        await cancel_all([self._hearing])


@contextlib.asynccontextmanager
async def run_delivery(
    redis_url: str, media: Path, *, chats: int = 50, call_s: float = 30.0, lease_s: float = 60.0, **abilities: Any
) -> AsyncIterator[DeliveryStage]:
    """An egress that runs, and is drained at the end."""
    client, worker = MortalClient(redis_url, timeout_s=1.0), Echo(redis_url)
    worker.start()
    settings = DeliverySettings(chats=chats, call_s=call_s)
    made = DeliveryStage(client, FakePlatform(**abilities), worker, media, settings, lease_s=lease_s)
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
