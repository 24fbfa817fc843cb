"""Chats that cost most today, for operators."""

from __future__ import annotations

import heapq
from typing import Final

import msgspec

from shared.store import keys
from shared.store.client.redis_client import RedisClient, server_ms

DAY_MS: Final = 86_400_000
SCAN_COUNT: Final = 2000


class Spender(msgspec.Struct, frozen=True, order=True):
    """What a chat used today, by the server's day (UTC); the dearest is the greatest."""

    usd: float
    tokens: int
    session: str


async def top_spenders(client: RedisClient, limit: int) -> list[Spender]:
    """Return the chats that cost most today, then those with most tokens. Reads one key a chat."""
    day = server_ms(await client.command("TIME")) // DAY_MS
    prefix, _, suffix = keys.spent("*", day).partition("*")
    found: dict[str, Spender] = {}  # SCAN may return a key twice
    async for page in client.scan("SCAN", match=f"{prefix}*{suffix}", count=SCAN_COUNT):
        used = await client.pipeline([("HMGET", key, "tokens", "micros") for key in page]) if page else ()
        for key, (tokens, micros) in zip(page, used, strict=True):
            session = key.decode().removeprefix(prefix).removesuffix(suffix)
            found[session] = Spender(int(micros or 0) / 1e6, int(tokens or 0), session)
    return heapq.nlargest(limit, found.values())
