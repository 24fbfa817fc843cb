"""Tokens and money that each chat used today, and each person on each day, by the server's day
(UTC). Requests over HTTP without a session of their own share one account per person."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from shared.ids import account_of, person_of
from shared.store import keys
from shared.store.client.redis_client import RedisClient, pairs, server_ms

DAY_MS: Final = 86_400_000
# A chat's money is counted in whole millionths of a dollar, which add up without error.
_MICROS: Final = 1_000_000


class Spent(msgspec.Struct, frozen=True):
    """Totals of a chat on a day, counted since 1970. `warn`: its person must be warned now."""

    day: int
    tokens: int = 0
    usd: float = 0.0
    warn: bool = False


class PersonSpent(msgspec.Struct, frozen=True):
    """What a person used on each day since the first of the last month or so, the oldest first, and
    `today`, counted since 1970. Days without use are missing."""

    today: int
    days: tuple[Spent, ...] = ()


class Spending:
    """The tallies of all chats, each kept for two days, and of all people, for two months."""

    def __init__(self, client: RedisClient) -> None:
        self._client = client

    async def add(self, session: str, tokens: int, usd: float, *, warn_tokens: int = 0, warn_usd: float = 0.0) -> Spent:
        """Add to today's totals. `warn` is set for the first call of a day that reaches
        `warn_tokens` or `warn_usd` (0: never). Raises RedisAway; it may have been added."""
        day, tokens, micros, warn = await self._client.run(
            "fleet/spend",
            name=account_of(session),
            person=person_of(session),
            tokens=tokens,
            micros=_micros(usd),
            warn_tokens=warn_tokens,
            warn_micros=_micros(warn_usd),
        )
        return Spent(day, tokens, micros / _MICROS, bool(warn))

    async def read(self, session: str) -> Spent:
        """Read today's totals. Raises RedisAway."""
        return await self.add(session, 0, 0.0)

    async def read_many(self, sessions: Sequence[str]) -> list[Spent]:
        """Read today's totals of several chats, in two round trips. Raises RedisAway."""
        day = server_ms(await self._client.command("TIME")) // DAY_MS
        found = await self._client.pipeline(
            [("HMGET", keys.spent(account_of(one), day), "tokens", "micros") for one in sessions]
        )
        return [Spent(day, int(tokens or 0), int(micros or 0) / _MICROS) for tokens, micros in found]

    async def of_person(self, person: str) -> PersonSpent:
        """Read the days of a person, as `shared.ids.person_of` names them. Raises RedisAway."""
        time, flat = await self._client.pipeline([("TIME",), ("HGETALL", keys.used(person))])
        fields = {name.decode(): int(value) for name, value in pairs(flat)}
        days = sorted({int(name.partition(":")[0]) for name in fields})
        spent = [Spent(day, fields.get(f"{day}:t", 0), fields.get(f"{day}:m", 0) / _MICROS) for day in days]
        return PersonSpent(server_ms(time) // DAY_MS, tuple(spent))


def _micros(usd: float) -> int:
    return round(usd * _MICROS)
