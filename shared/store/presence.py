"""What running processes say of themselves, and what the queues look like: for operators and autoscaling."""

from __future__ import annotations

from typing import Final

import msgspec

from shared.store import keys
from shared.store.client import RedisClient
from shared.store.scripts import load

PRESENCE_TTL_S: Final = 15
PRESENCE_EVERY_S: Final = 5
TURNS: Final = "turns"
SAMPLE: Final = 256
WHY_OFF: Final = "sandbox.why"
"""The detail of a worker that says why there is no sandbox: long, for `shoal doctor` alone."""


class Presence(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A live gateway or worker. `details` are short facts such as slots, model, channels."""

    kind: str
    name: str
    host: str
    pid: int
    started_at: int
    version: str
    running: int = 0
    slots: int = 0
    draining: bool = False
    details: dict[str, str] = {}


class QueueReading(msgspec.Struct, frozen=True):
    """How a queue stands now."""

    name: str
    due: int
    running: int
    delayed: int
    oldest_due_s: float


async def announce(client: RedisClient, presence: Presence) -> None:
    """Say that this process lives; forgotten after 15 s. Say it again every 5 s."""
    await client.run(
        load("announce"),
        [keys.presence(presence.kind, presence.name), keys.PRESENCE],
        [msgspec.json.encode(presence), PRESENCE_TTL_S],
    )


async def withdraw(client: RedisClient, presence: Presence) -> None:
    """Take the record back at a clean stop."""
    await client.command("DEL", keys.presence(presence.kind, presence.name))


async def present(client: RedisClient) -> list[Presence]:
    """Every live process, by kind and name."""
    found = await client.command("ZRANGE", keys.PRESENCE, 0, -1)
    if not found:
        return []
    records = await client.command("MGET", *found)
    alive = [msgspec.json.decode(record, type=Presence) for record in records if record is not None]
    return sorted(alive, key=lambda p: (p.kind, p.name))


async def read_queue(client: RedisClient, name: str) -> QueueReading:
    """Counts and the age of the oldest due member, by the server's clock.

    What runs of the background has its leases among those of turns; of more than 256 that run a sample says how many.
    """
    leases = keys.leases(TURNS if name == keys.BACKGROUND else name)
    (seconds, micros), leased, total, some = await client.pipeline(
        [("TIME",), ("HLEN", leases), ("ZCARD", keys.queue(name)), ("HRANDFIELD", leases, SAMPLE)]
    )
    behind = 0
    if name in (TURNS, keys.BACKGROUND) and some:
        whose = await client.command("HMGET", keys.SHARES, *some)
        behind = round(whose.count(keys.BACKGROUND.encode()) / len(some) * leased)
    running = behind if name == keys.BACKGROUND else leased - behind
    scored = 0 if name == keys.BACKGROUND else leased
    now = int(seconds) * 1000 + int(micros) // 1000
    due, oldest = await client.pipeline(
        [
            ("ZCOUNT", keys.queue(name), "-inf", now),
            ("ZRANGEBYSCORE", keys.queue(name), "-inf", now, "WITHSCORES", "LIMIT", 0, 1),
        ]
    )
    age_s = max(0.0, (now - float(oldest[1])) / 1000) if oldest else 0.0
    return QueueReading(name, due, running, max(0, total - due - scored), age_s)
