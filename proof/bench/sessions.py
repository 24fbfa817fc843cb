"""Conversations that are there before a bench begins, made by the product's own writes."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from shared.ids import nonce
from shared.messages.live import TurnEvent
from shared.messages.transcript import AssistantEntry, TranscriptEntry, UserEntry
from shared.store.client.redis_client import RedisClient
from shared.store.turns.inbox import Inbox, InboxLimits
from shared.store.turns.queue import LeaseQueue
from shared.store.turns.turn_writes import Turns
from tests.helpers.build import reply, say

WORDS: Final = "The shoal turned as one, a thousand small fish and not one of them in charge of the others. "
AT_ONCE: Final = 100
AT_MS: Final = 1_782_043_200_000


def history(messages: int, chars: int = 520) -> list[TranscriptEntry]:
    """A conversation of so many messages; 40 of 520 characters are 21 kB."""
    text = (WORDS * (chars // len(WORDS) + 1))[:chars]
    entries: list[TranscriptEntry] = []
    for n in range(messages // 2):
        at = AT_MS + n * 60_000
        entries += [
            UserEntry(content=f"{n}: {text}"[:chars], turn=n + 1, at=at, sender_id="owner"),
            AssistantEntry(content=f"{n}: {text}"[:chars], turn=n + 1, at=at),
        ]
    return entries


async def make_sessions(client: RedisClient, chats: Sequence[str], entries: Sequence[TranscriptEntry]) -> None:
    """One turn each that leaves `entries`: the message, the lease, the commit. No worker may run meanwhile."""
    inbox, turns = Inbox(client, InboxLimits(sessions_cap=10_000_000)), Turns(client)
    queue = LeaseQueue(client, "turns", owner=nonce(), lease_s=60)
    for start in range(0, len(chats), AT_ONCE):
        await asyncio.gather(*(say(inbox, "hello", chat=f"owner/{chat}") for chat in chats[start : start + AT_ONCE]))
        claims = await queue.acquire(AT_ONCE)
        assert len(claims) == len(chats[start : start + AT_ONCE])
        await asyncio.gather(
            *(
                turns.commit(one, history=entries, lines=[reply("answer", 1)], event=TurnEvent(1, "done"))
                for one in claims
            )
        )
    await queue.close()
