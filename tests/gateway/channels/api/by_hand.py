"""A turn that a test runs by hand: what it shows, and its last line."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any

from shared.ids import nonce
from shared.messages.effects import SayEffect
from shared.messages.inbound import InboundMessage, decode_inbound
from shared.messages.live import DeltaEvent, JoinedEvent, TurnEvent
from shared.messages.outbound import OutboundMessage
from shared.messages.transcript import EffectEntry
from shared.store.client.redis_client import RedisClient
from shared.store.delivery.fanout import publish
from shared.store.turns.inbox import TURNS
from shared.store.turns.queue import Claim, LeaseQueue
from shared.store.turns.turn_writes import Turns
from tests.helpers.wait import eventually


class TurnByHand:
    """A leased turn. `number` is the one that its events carry."""

    def __init__(self, client: RedisClient, claim: Claim) -> None:
        assert claim.turn is not None
        self.claim = claim
        self.number = claim.turn.n
        self.message: InboundMessage = decode_inbound(claim.turn.record)
        self._client = client
        self._steps = 0
        self._seq: dict[int, int] = {}

    async def show(self, text: str, *, attempt: int = 1, full: bool = False) -> None:
        """A delta of an attempt."""
        seq = self._seq.get(attempt, 0)
        self._seq[attempt] = seq + 1
        event = DeltaEvent(self.number, attempt, seq, text, full or seq == 0)
        # A gateway that shows a chat for the first time may still be connecting.
        await eventually(lambda: publish(self._client, self.claim.session, event), within_s=60, what="a listener")

    async def joins(self, *messages: int) -> None:
        """Messages joined the turn."""
        await publish(self._client, self.claim.session, JoinedEvent(self.number, messages))

    async def say(self, text: str, **fields: Any) -> None:
        """The agent says something with its message tool."""
        self._steps += 1
        line = OutboundMessage(content=text, turn=self.number, kind="notice", sent_by_tool=True, **fields)
        entry = EffectEntry(call_id=f"c{self._steps}", turn=self.number, kind=SayEffect.kind, to=self.claim.session)
        effect = SayEffect(session=self.claim.session, line=line)
        await Turns(self._client).append_step(self.claim, self._steps, entry, effect)

    async def end(self, content: str, **fields: Any) -> None:
        """The last line."""
        line = OutboundMessage(content=content, turn=self.number, in_reply_to=(self.message.id,), **fields)
        event = TurnEvent(self.number, "done")
        await Turns(self._client).commit(self.claim, history=[], lines=[line], event=event)


@contextlib.asynccontextmanager
async def turn_by_hand(client: RedisClient) -> AsyncIterator[TurnByHand]:
    """The next turn that is due."""
    queue = LeaseQueue(client, TURNS, owner=nonce(), lease_s=60)
    try:
        [claim] = await eventually(lambda: queue.acquire(1), within_s=30, what="a turn")
        yield TurnByHand(client, claim)
    finally:
        await queue.close()
