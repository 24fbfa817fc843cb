"""A chat on a platform as a test of the store needs it: a person writes, a worker answers, a gateway delivers."""

from __future__ import annotations

from typing import Final

import msgspec

from shared.ids import nonce, session_id
from shared.messages.live import TurnEvent
from shared.messages.outbound import LogLine, OutboundMessage
from shared.store import keys
from shared.store.client.redis_client import RedisClient
from shared.store.delivery.deliveries import Cleared, DeliveryQueue, DeliveryState, LeasedChat, ResendGuard
from shared.store.turns.inbox import Accepted, Inbox, InboxLimits
from shared.store.turns.queue import LeaseQueue
from shared.store.turns.turn_writes import Turns
from tests.helpers.build import message, reply
from tests.helpers.clock import HandClock

CHANNEL: Final = "telegram"
LEASE_S: Final = 30.0


class PlatformChat:
    """Chat `chat` of CHANNEL on a real Valkey."""

    def __init__(self, client: RedisClient, chat: str = "42", *, limits: InboxLimits | None = None) -> None:
        self.chat = chat
        self.session = session_id(CHANNEL, chat)
        self._client = client
        self._inbox = Inbox(client, limits)
        self._queue = LeaseQueue(client, "turns", owner=nonce(), lease_s=60)
        self._turns = Turns(client, limits)

    async def ask(self, text: str = "hello", *, bot: bool = False) -> Accepted:
        """A person writes, or a bot does."""
        sent = message(text, chat=self.chat, channel=CHANNEL)
        return await self._inbox.ingest(msgspec.structs.replace(sent, metadata={"bot": "1"} if bot else {}))

    async def answer(self, *texts: str) -> None:
        """A worker answers what is at the head of the inbox, with these lines."""
        await self._client.command("ZADD", keys.queue("turns"), 0, keys.turn(self.session))  # before other chats
        [claim] = await self._queue.acquire(1)
        assert claim.turn is not None
        n = claim.turn.n
        lines: list[LogLine] = [reply(text, n) for text in texts]
        await self._turns.commit(claim, history=[], lines=lines, event=TurnEvent(n, "done"))

    async def ask_and_answer(self, *texts: str) -> None:
        """Store a message and answer it with `texts`."""
        await self.ask()
        await self.answer(*texts)

    async def time_passes(self, ms: int = 3_600_000) -> None:
        """As much less is left until the chat is due, or its lease lapses."""
        await self._client.command("ZINCRBY", keys.outqueue(CHANNEL), -ms, self.session)

    async def keys(self) -> set[str]:
        """The keys of deliveries, without the prefix."""
        found = [
            name.decode().removeprefix("shoal:{0ax}:")
            for name in await self._client.command("KEYS", "shoal:{0ax}:out*")
        ]
        return set(found)


def gateway(client: RedisClient, resend_guard: ResendGuard = "nothing") -> DeliveryQueue:
    """A gateway that has run for long: it leaves nothing alone."""
    clock = HandClock()
    made = DeliveryQueue(client, CHANNEL, lease_s=LEASE_S, resend_guard=resend_guard, clock=clock)
    clock.at += LEASE_S
    return made


async def lease_one(deliveries: DeliveryQueue) -> LeasedChat:
    """The one chat that is due."""
    [held], _ = await deliveries.acquire(5)
    return held


async def deliver(deliveries: DeliveryQueue, held: LeasedChat, seq: int, *, part: int = 0) -> None:
    """The last post of a line goes out."""
    assert await deliveries.begin_post(held, seq, part) == Cleared(unclear=False)
    assert await deliveries.finish_post(held, seq, part, last=True, id=f"{seq}.{part}")


def texts(look: DeliveryState | None) -> list[str]:
    """What waits."""
    assert look is not None
    return [entry.line.content for entry in look.pending if isinstance(entry.line, OutboundMessage)]
