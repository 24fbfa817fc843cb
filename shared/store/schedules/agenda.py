"""Agendas: sorted sets of members, each with the server's time in ms from which it is due."""

from __future__ import annotations

import contextlib

import msgspec

from shared.store.client.redis_client import RedisClient, pairs, server_ms


class AgendaEntry(msgspec.Struct, frozen=True):
    """A member and its time, as they were read."""

    member: str
    at_ms: int


class Agenda:
    """An agenda. A change names the time it saw, to hide no newer one. Methods raise RedisAway."""

    def __init__(self, client: RedisClient, key: str) -> None:
        self._client = client
        self._key = key

    async def due(self, limit: int = 100) -> list[AgendaEntry]:
        """Return the members that are due, the longest waiting first."""
        # The server's clock, which also set the times.
        due = "-inf", server_ms(await self._client.command("TIME"))
        page = "WITHSCORES", "LIMIT", 0, limit
        found = await self._client.command("ZRANGEBYSCORE", self._key, *due, *page)
        return [AgendaEntry(member.decode(errors="replace"), score_ms(at)) for member, at in pairs(found)]

    async def find(self, member: str) -> AgendaEntry | None:
        """Find a member, due or not; None when it is not in the agenda."""
        at = await self._client.command("ZSCORE", self._key, member)
        return None if at is None else AgendaEntry(member, score_ms(at))

    async def remove(self, due: AgendaEntry) -> bool:
        """Remove a member that was handled. Returns False when it has got another time since."""
        return await self._change(due, "")

    async def put_off(self, due: AgendaEntry, by_ms: int) -> bool:
        """Put a member off by `by_ms`. Returns False when it has got another time since."""
        return await self._change(due, by_ms)

    async def _change(self, due: AgendaEntry, by_ms: int | str) -> bool:
        changed = await self._client.run(
            "schedules/reschedule", agenda=self._key, member=due.member, at_ms=due.at_ms, delay_ms=by_ms
        )
        return bool(changed)


def score_ms(score: bytes) -> int:
    """Return the time that a score stands for; 0 for what we never write: infinity, or other
    words."""
    with contextlib.suppress(ValueError, OverflowError):
        return int(float(score))
    return 0
