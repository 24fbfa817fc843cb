"""The time zones that people have chosen on the page, as this process knows them."""

from __future__ import annotations

from contextlib import suppress
from typing import Final

from shared.clock import SYSTEM_CLOCK, Clock
from shared.errors import RedisAway, Refused, ReplyError
from shared.ids import WEB
from shared.store.access.person_choices import PersonChoices
from shared.store.client.redis_client import RedisClient

KNOWN_S: Final = 60.0
"""So long a zone is believed before it is read again: messages come faster than people move."""

KNOWN_PEOPLE: Final = 1000


class ChosenZones:
    """The chosen zone of each person. One that was changed at another gateway counts here within
    KNOWN_S."""

    def __init__(self, client: RedisClient, clock: Clock = SYSTEM_CLOCK) -> None:
        self._choices = PersonChoices(client, WEB)
        self._clock = clock
        self._known: dict[str, tuple[str, float]] = {}

    async def zone_of(self, principal: str) -> str:
        """Return the zone of a person; "" for none. While it cannot be read it is the last one
        that was known: a message must not be lost over it."""
        zone, until = self._known.get(principal, ("", 0.0))
        if self._clock.monotonic() >= until:
            # ReplyError: an older list of Redis' users does not let a gateway read it.
            with suppress(RedisAway, Refused, ReplyError):
                zone = await self.read_zone(principal)
        return zone

    async def read_zone(self, principal: str) -> str:
        """Read the zone of a person from the store. Raises RedisAway."""
        before = self._known.get(principal)
        zone = await self._choices.read_timezone(principal)
        # One that was chosen, or read, while this was on its way is newer.
        now = self._known.get(principal)
        if now is not None and now is not before:
            return now[0]
        return self._keep(principal, zone)

    async def choose(self, principal: str, zone: str) -> None:
        """Keep the zone of a person; "" forgets it. Raises RedisAway, Refused."""
        await self._choices.write_timezone(principal, zone)
        self._keep(principal, zone)

    def _keep(self, principal: str, zone: str) -> str:
        if len(self._known) >= KNOWN_PEOPLE:
            self._known.clear()
        self._known[principal] = zone, self._clock.monotonic() + KNOWN_S
        return zone
