"""Tokens and money that each chat used today, by the server's day (UTC). Requests over HTTP
without a session of their own share one account per person."""

from __future__ import annotations

from typing import Final

import msgspec

from shared.ids import account_of
from shared.store.client.redis_client import RedisClient

# A chat's money is counted in whole millionths of a dollar, which add up without error.
_MICROS: Final = 1_000_000


class Spent(msgspec.Struct, frozen=True):
    """Totals of a chat on a day, counted since 1970. `warn`: its person must be warned now."""

    day: int
    tokens: int = 0
    usd: float = 0.0
    warn: bool = False


class Spending:
    """The tallies of all chats; each is kept for two days."""

    def __init__(self, client: RedisClient) -> None:
        self._client = client

    async def add(self, session: str, tokens: int, usd: float, *, warn_tokens: int = 0, warn_usd: float = 0.0) -> Spent:
        """Add to today's totals. `warn` is set for the first call of a day that reaches
        `warn_tokens` or `warn_usd` (0: never). Raises RedisAway; it may have been added."""
        day, tokens, micros, warn = await self._client.run(
            "fleet/spend",
            name=account_of(session),
            tokens=tokens,
            micros=_micros(usd),
            warn_tokens=warn_tokens,
            warn_micros=_micros(warn_usd),
        )
        return Spent(day, tokens, micros / _MICROS, bool(warn))

    async def read(self, session: str) -> Spent:
        """Read today's totals. Raises RedisAway."""
        return await self.add(session, 0, 0.0)


def _micros(usd: float) -> int:
    return round(usd * _MICROS)
