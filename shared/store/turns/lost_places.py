"""Chats that lost their place in the queue, as after somebody deleted a broken queue."""

from __future__ import annotations

from shared.store import keys
from shared.store.client.packing import pack
from shared.store.client.redis_client import RedisClient
from shared.store.turns.inbox import TURNS


async def requeue_lost(client: RedisClient) -> int:
    """Queue every chat again that has messages and is in no queue; return how many. Raises
    RedisAway. It looks at all keys, so only the console may call it."""
    count = 0
    async for found in client.scan("SCAN", match=f"{keys.inbox}*"):
        if found:
            sessions = [name.decode(errors="replace").removeprefix(keys.inbox) for name in found]
            count += await client.run("sessions/requeue", queue=TURNS, names=pack(sessions))
    return count
