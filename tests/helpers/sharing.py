"""Messages of several people and ticks, and slots that are always full."""

from __future__ import annotations

from collections import deque

import msgspec

from shared.messages.live import TurnEvent
from shared.messages.schedule import BACKGROUND
from shared.store import keys
from shared.store.client.redis_client import RedisClient
from shared.store.turns.inbox import Accepted, Inbox
from shared.store.turns.queue import Claim, LeaseQueue
from shared.store.turns.turn_writes import Turns
from tests.helpers.build import message, reply


async def person(inbox: Inbox, who: str, chat: str = "a") -> Accepted:
    """A message of somebody in a chat of theirs."""
    return await inbox.ingest(msgspec.structs.replace(message(chat=f"{who}/{chat}"), sender_id=who))


async def tick(inbox: Inbox, chat: str = "owner/a") -> Accepted:
    """A message that no person waits for."""
    return await inbox.ingest(msgspec.structs.replace(message(chat=chat), metadata={BACKGROUND: "1"}), internal=True)


async def where(client: RedisClient, session: str = "web:owner/a") -> list[str]:
    """The queues in which it is."""
    names = ("turns", keys.BACKGROUND)
    return [name for name in names if await client.command("ZSCORE", keys.queue(name), keys.turn(session)) is not None]


class Slots:
    """So many slots of one worker that are filled whenever something is due; the turn that began first ends first.

    `begun` are the chats of the turns in the order in which they began."""

    def __init__(self, client: RedisClient, slots: int, *, share: float = 0.5) -> None:
        self.begun: list[str] = []
        self.running: deque[Claim] = deque()
        self.queue = LeaseQueue(client, "turns", owner="slots", lease_s=60, person_share=share)
        self._client = client
        self._slots = slots
        self._turns = Turns(client)

    async def fill(self) -> None:
        """Take as a lease loop does: one at a time while a slot is free."""
        while len(self.running) < self._slots:
            # As if a moment had passed: what is much work is not done in each.
            await self._client.command("ZREM", keys.LAST_SERVED, "looked", "made room")
            claims = await self.queue.acquire(1)
            if not claims:
                break
            self.running += claims
            self.begun += [claim.session.removeprefix("web:") for claim in claims]

    async def end(self, claim: Claim) -> None:
        """Commit it, and fill its slot."""
        await self.commit(claim)
        await self.fill()

    async def commit(self, claim: Claim) -> None:
        """Commit it; its slot stays empty."""
        assert claim.turn is not None
        self.running.remove(claim)
        n = claim.turn.n
        await self._turns.commit(claim, history=[], lines=[reply("ok", n)], event=TurnEvent(n, "done"))

    async def turn(self, turns: int = 1) -> None:
        """So many of those that run end."""
        for _ in range(turns):
            await self.end(self.running[0])

    async def until(self, chat: str) -> int:
        """End turns until one of `chat` begins; how many have begun before it since now."""
        before = len(self.begun)
        while chat not in self.begun[before:]:
            await self.turn()
        return self.begun[before:].index(chat)
