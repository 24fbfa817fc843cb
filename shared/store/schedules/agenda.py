"""Agendas: sorted sets of members, each with the server's time in ms from which it is due."""

from __future__ import annotations

import msgspec

from shared.store.client.redis_client import RedisClient


class AgendaEntry(msgspec.Struct, frozen=True):
    """A member and its time, as they were read."""

    member: str
    at_ms: int


class Agenda:
    """One of `keys.IDLE`, `keys.REWORK` and `keys.EPHEMERAL`. A change names the time it saw, so
    that it never hides a newer one."""

    def __init__(self, client: RedisClient, key: str) -> None:
        self._client = client
        self._key = key

    async def due(self, limit: int = 100) -> list[AgendaEntry]:
        """Return the members that are due, the longest waiting first. Raises RedisAway."""
        # The server's clock, which also set the times.
        seconds, micros = await self._client.command("TIME")
        now_ms = int(seconds) * 1000 + int(micros) // 1000
        found = await self._client.command("ZRANGEBYSCORE", self._key, "-inf", now_ms, "WITHSCORES", "LIMIT", 0, limit)
        return [
            AgendaEntry(member.decode(), int(float(at))) for member, at in zip(found[::2], found[1::2], strict=True)
        ]

    async def find(self, member: str) -> AgendaEntry | None:
        """Find a member, due or not; None when it is not in the agenda. Raises RedisAway."""
        at = await self._client.command("ZSCORE", self._key, member)
        return None if at is None else AgendaEntry(member, int(float(at)))

    async def remove(self, due: AgendaEntry) -> bool:
        """Remove a member that was handled. Returns False when it has got another time since.
        Raises RedisAway."""
        return await self._change(due, "")

    async def put_off(self, due: AgendaEntry, by_ms: int) -> bool:
        """Put a member off by `by_ms`. Returns False when it has got another time since. Raises
        RedisAway."""
        return await self._change(due, by_ms)

    async def _change(self, due: AgendaEntry, by_ms: int | str) -> bool:
        done: int = await self._client.run("schedules/reschedule", [self._key], [due.member, due.at_ms, by_ms])
        return done == 1
