"""What a person has chosen for themselves, on every device: the time zone of their plans."""

from __future__ import annotations

from shared.ids import session_id
from shared.store import keys
from shared.store.client.redis_client import RedisClient


class PersonChoices:
    """The choices of the people of one channel. Methods raise RedisAway."""

    def __init__(self, client: RedisClient, channel: str) -> None:
        self._client = client
        self._channel = channel

    async def read_timezone(self, principal: str) -> str:
        """Return the IANA name of the zone that a person has chosen; "" for none."""
        found = await self._client.command("HGET", self._key(principal), "timezone")
        return (found or b"").decode(errors="replace")

    async def write_timezone(self, principal: str, timezone: str) -> None:
        """Keep the zone of a person; "" forgets it."""
        if timezone:
            await self._client.command("HSET", self._key(principal), "timezone", timezone)
        else:
            await self._client.command("HDEL", self._key(principal), "timezone")

    def _key(self, principal: str) -> str:
        return keys.person(session_id(self._channel, principal))
