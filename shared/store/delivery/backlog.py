"""Lines that wait for delivery to platforms, by channel: for the gauges."""

from __future__ import annotations

import msgspec

from shared.store import keys
from shared.store.client.redis_client import RedisClient


class OutboxReading(msgspec.Struct, frozen=True):
    """Backlog of one channel: chats with an undelivered line, and the age of the oldest such
    line."""

    channel: str
    waiting: int
    oldest_s: float


async def read_outboxes(client: RedisClient) -> list[OutboxReading]:
    """Read the backlog of every delivered channel that had a line within the last weeks. Raises
    RedisAway."""
    (seconds, micros), known = await client.pipeline([("TIME",), ("ZRANGE", keys.OUTBOXES, 0, -1)])
    if not known:
        return []
    channels = [name.decode() for name in known]
    answers = await client.pipeline(
        [
            question
            for channel in channels
            for question in (
                ("ZCARD", keys.outwaits(channel)),
                ("ZRANGE", keys.outwaits(channel), 0, 0, "WITHSCORES"),
            )
        ]
    )
    now = int(seconds) * 1000 + int(micros) // 1000
    return [
        OutboxReading(channel, answers[2 * at], _age_s(now, answers[2 * at + 1])) for at, channel in enumerate(channels)
    ]


def _age_s(now_ms: int, oldest: list[bytes]) -> float:
    return max(0.0, (now_ms - float(oldest[1])) / 1000) if oldest else 0.0
