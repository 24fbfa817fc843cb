"""A turn that waits for a person's yes."""

from __future__ import annotations

from typing import Final

from shared.ids import nonce
from shared.messages.transcript import ApprovalEntry
from shared.store.client.redis_client import RedisClient
from shared.store.turns.inbox import TURNS
from shared.store.turns.queue import LeaseQueue
from shared.store.turns.turn_writes import Turns
from tests.helpers.parked import ask

QUESTION: Final = ApprovalEntry(
    id="0123456789",
    call_id="c1",
    turn=1,
    tool="exec",
    digest="d" * 64,
    arguments='{"command": "ls"}',
    people=("owner",),
)


async def ask_for_approval(client: RedisClient) -> str:
    """Have the turn that is due ask whether it may run a command; the id of the question."""
    queue = LeaseQueue(client, TURNS, owner=nonce(), lease_s=30)
    [claim] = await queue.acquire(1)
    assert await ask(Turns(client), claim, 1, QUESTION)
    await queue.close()
    return QUESTION.id
