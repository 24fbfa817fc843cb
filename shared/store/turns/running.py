"""Turns that run now, for operators: which worker has which session."""

from __future__ import annotations

from typing import Final

import msgspec

from shared.store import keys
from shared.store.client.redis_client import RedisClient
from shared.store.turns.inbox import TURNS

RUNNING_LIMIT: Final = 100
"""Limit of running turns that are read at once."""


class RunningTurn(msgspec.Struct, frozen=True):
    """A session whose turn runs, the name of the worker that has it, and the messages in its inbox,
    of which the first is being answered."""

    session: str
    worker: str
    messages: int


async def list_running(client: RedisClient) -> tuple[RunningTurn, ...]:
    """Return at most RUNNING_LIMIT turns by session. Raises RedisAway."""
    # One page is enough: the cost must not grow with the number of turns.
    _, flat = await client.command("HSCAN", keys.leases(TURNS), 0, "COUNT", RUNNING_LIMIT)
    texts = [value.decode(errors="replace") for value in flat]
    found = {
        member.removeprefix(keys.TURN_PREFIX): owner[:12] for member, owner in zip(texts[::2], texts[1::2], strict=True)
    }
    names = sorted(found)[:RUNNING_LIMIT]
    counts = await client.pipeline([("XLEN", keys.inbox(name)) for name in names]) if names else []
    rows = zip(names, counts, strict=True)
    return tuple(RunningTurn(name, found[name], count) for name, count in rows)


async def head_turn(client: RedisClient, session: str) -> int | None:
    """Return the number of the turn at the head of a session, or None. Raises RedisAway."""
    entries = await client.command("XRANGE", keys.inbox(session), "-", "+", "COUNT", 1)
    return int(entries[0][0].split(b"-")[0]) if entries else None
